/** The language of the samples: chosen once, for all of them, and remembered by this browser. */
import { arrowsBetween, copy } from './dom.ts';

const KEPT = 'reference-language';

export function startCodeTabs(): void {
  for (const copyButton of document.querySelectorAll<HTMLButtonElement>('.sample .copy')) {
    copyButton.hidden = false;
    copyButton.addEventListener('click', () => {
      const shown = copyButton.closest('.sample')?.querySelector('pre:not([hidden])');
      void copy(shown?.textContent ?? '', copyButton);
    });
  }
  for (const list of document.querySelectorAll('.sample.code [role=tablist]')) {
    list.addEventListener('click', ({ target }) => {
      const tab = (target as Element).closest<HTMLElement>('[role=tab]'); // clicks hit elements
      if (tab !== null) choose(tab);
    });
    arrowsBetween(list, choose);
  }
  const kept = remembered();
  if (kept !== undefined) show(kept);
}

/** What is above changes its height with the language; the chosen tab stays where it is. */
function choose(tab: HTMLElement): void {
  const { language = '' } = tab.dataset;
  const before = tab.getBoundingClientRect().top;
  show(language);
  const moved = tab.getBoundingClientRect().top - before;
  scrollBy({ top: moved, behavior: 'instant' });
  try {
    localStorage.setItem(KEPT, language);
  } catch {
    // It lasts for this page only.
  }
}

function show(language: string): void {
  for (const box of document.querySelectorAll('.sample.code')) {
    if (box.querySelector(`[data-language=${language}]`) === null) continue;
    for (const tab of box.querySelectorAll<HTMLElement>('[role=tab]')) {
      const isChosen = tab.dataset['language'] === language;
      tab.setAttribute('aria-selected', String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    for (const text of box.querySelectorAll<HTMLElement>('pre')) {
      text.hidden = text.dataset['language'] !== language;
    }
  }
}

function remembered(): string | undefined {
  try {
    const kept = localStorage.getItem(KEPT) ?? '';
    return /^\w+$/.test(kept) ? kept : undefined;
  } catch {
    // A browser may forbid storage.
    return undefined;
  }
}
