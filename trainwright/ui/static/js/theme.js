// Light or dark: as the system says, unless the user has chosen here.
const KEY = "trainwright.theme";
const CHOICES = ["system", "light", "dark"];

/** @returns {string} the choice of this browser: system, light or dark. */
export function chosenTheme() {
  const stored = localStorage.getItem(KEY);
  return CHOICES.includes(stored) ? stored : "system";
}

/** Applies a choice, and remembers it. */
export function applyTheme(choice) {
  localStorage.setItem(KEY, choice);
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  dispatchEvent(new CustomEvent("themechange"));
}

/** @returns {string} the next choice, in a circle. */
export function nextTheme(choice) {
  return CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
}
