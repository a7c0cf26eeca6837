/** Light or dark: by the system, unless the viewer chose; the choice is all that is kept. */
import { signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';
export const theme = signal<Theme>(stored());
/** Counts changes of the colours, for what is drawn and not styled. */
export const colours = signal(0);

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    // A browser may forbid storage; the system decides then.
    return 'system';
  }
}

export function chooseTheme(next: Theme): void {
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It lasts for this page only.
  }
  applyTheme();
}

export function applyTheme(): void {
  const { dataset } = document.documentElement;
  if (theme.value === 'system') delete dataset.theme;
  else dataset.theme = theme.value;
  colours.value += 1;
}

/** What is drawn and not styled follows the system, too, when that changes. */
export function followSystem(): void {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (colours.value += 1));
}
