/** The light or dark theme: that of the system, unless the user chose one. Stores only the choice. */
import { signal } from '@preact/signals';
import { readStored, writeStored } from './browser-storage.ts';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';
export const theme = signal<Theme>(stored());
/** Counts theme changes, for charts, which CSS does not style. */
export const colours = signal(0);

function stored(): Theme {
  const value = readStored(KEY);
  return value === 'light' || value === 'dark' ? value : 'system';
}

export function chooseTheme(next: Theme): void {
  theme.value = next;
  writeStored(KEY, next);
  applyTheme();
}

export function applyTheme(): void {
  const { dataset } = document.documentElement;
  if (theme.value === 'system') delete dataset.theme;
  else dataset.theme = theme.value;
  colours.value += 1;
}

/** Redraws charts when the theme of the system changes. */
export function followSystem(): void {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (colours.value += 1));
}
