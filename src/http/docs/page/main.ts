/**
 * The program of the reference: the menu, the search, the language of the samples, and calls from
 * the page. Without it the page lacks nothing that is to be read.
 */
import { startCodeTabs } from './code-tabs.ts';
import { startSearch } from './search.ts';
import { startTryIt } from './try-it.ts';
import './docs.css';

/** On a phone the menu starts closed, and closes when something of it was chosen. */
function startMenu(): void {
  const menu = document.querySelector<HTMLDetailsElement>('nav details');
  if (menu === null) return;
  const wide = matchMedia('(min-width: 60rem)');
  const fit = (): void => {
    menu.open = wide.matches;
  };
  fit();
  wide.addEventListener('change', fit);
  menu.addEventListener('click', ({ target }) => {
    if (!wide.matches && (target as Element).closest('a') !== null) menu.open = false;
  });
}

/** The console's choice of colours holds here too. */
function applyTheme(): void {
  try {
    const theme = localStorage.getItem('theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset['theme'] = theme;
  } catch {
    // A browser may forbid storage; the system decides then.
  }
}

applyTheme();
startMenu();
startCodeTabs();
startTryIt();
startSearch();
