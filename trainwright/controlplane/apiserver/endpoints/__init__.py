"""Virtual resources that are not stored: reviews, token requests, Trainer status reports; and CRD registration."""
