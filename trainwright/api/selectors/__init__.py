"""Label and field selectors: parsing their text and selecting objects by them."""
