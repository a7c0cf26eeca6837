/**
 * Finds routes, fields, errors and chapters by what is in the page: no index is loaded. `/` goes
 * there, arrows choose, Enter opens. Every find has an address: `#operation`, `#operation.field`,
 * `#error-CODE`.
 */
import { make } from './dom.ts';

interface Entry {
  readonly kind: 'route' | 'chapter' | 'error' | 'field' | 'answer';
  readonly title: string;
  /** Where it is, or what it says. */
  readonly about: string;
  readonly hash: string;
  readonly verb?: string;
  readonly name: string;
  readonly context: string;
}

const MAX_FOUND = 24;
/** Of two that fit as well, the one that more people look for comes first. */
const WEIGHTS = { route: 12, chapter: 9, error: 6, field: 3, answer: 0 } as const;

export function startSearch(): void {
  const input = document.querySelector<HTMLInputElement>('#search');
  const list = document.querySelector<HTMLElement>('#found');
  const box = input?.closest<HTMLElement>('.search');
  if (!input || !list || !box) return;
  box.hidden = false;
  let entries: readonly Entry[] | undefined;
  let at = 0;

  const close = (): void => {
    if (list.matches(':popover-open')) list.hidePopover();
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  };
  const mark = (next: number): void => {
    const options = list.querySelectorAll('[role=option]');
    if (options.length === 0) return;
    at = (next + options.length) % options.length;
    options.forEach((one, index) => one.setAttribute('aria-selected', String(index === at)));
    input.setAttribute('aria-activedescendant', options[at]?.id ?? '');
    options[at]?.scrollIntoView({ block: 'nearest' });
  };
  const find = (): void => {
    entries ??= readPage();
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) {
      close();
      return;
    }
    const found = best(entries, words);
    list.replaceChildren(...(found.length === 0 ? [nothing(input.value)] : found.map(option)));
    place(list, box);
    if (!list.matches(':popover-open')) list.showPopover();
    input.setAttribute('aria-expanded', 'true');
    mark(0);
  };
  const open = (chosen: Element | null | undefined): void => {
    const { hash } = (chosen as HTMLElement | null | undefined)?.dataset ?? {}; // options are HTML
    if (hash === undefined) return;
    close();
    input.blur();
    if (location.hash === hash) reveal(hash);
    else location.hash = hash;
  };

  input.addEventListener('input', find);
  input.addEventListener('focus', find);
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') mark(at + 1);
    else if (event.key === 'ArrowUp') mark(at - 1);
    else if (event.key === 'Enter') open(list.querySelector('[aria-selected=true]'));
    else if (event.key === 'Escape') {
      input.value = '';
      close();
    } else return;
    event.preventDefault();
  });
  // The input keeps the focus, or the list would close before the click.
  list.addEventListener('pointerdown', (event) => event.preventDefault());
  list.addEventListener('click', ({ target }) =>
    open((target as Element).closest('[role=option]')),
  );
  document.addEventListener('keydown', (event) => {
    const isTyping = (event.target as Element).matches('input, textarea, select');
    if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
  addEventListener('resize', close);
  addEventListener('hashchange', () => reveal(location.hash));
  reveal(location.hash);
}

/** `#operation.field` opens what the field is in, and shows it. */
function reveal(hash: string): void {
  for (const was of document.querySelectorAll('.shown')) was.classList.remove('shown');
  const target = placeOf(hash);
  if (target === undefined) return;
  for (let around = target.closest('details'); around;) {
    around.open = true;
    around = around.parentElement?.closest('details') ?? null;
  }
  target.classList.add('shown');
  target.scrollIntoView({ block: target.matches('article') ? 'start' : 'center' });
}

function placeOf(hash: string): Element | undefined {
  let text: string;
  try {
    text = decodeURIComponent(hash.slice(1));
  } catch {
    // Somebody wrote it by hand.
    return undefined;
  }
  const whole = document.getElementById(text);
  if (whole !== null) return whole;
  const dot = text.indexOf('.');
  const article = dot === -1 ? null : document.getElementById(text.slice(0, dot));
  const name = text.slice(dot + 1);
  const fields = [...(article?.querySelectorAll('.field') ?? [])];
  return fields.find((field) => field.querySelector('dt code')?.textContent === name);
}

function readPage(): Entry[] {
  const found: Entry[] = [];
  const add = (entry: Omit<Entry, 'name' | 'context'>): void => {
    const context = `${entry.title} ${entry.about} ${entry.verb ?? ''}`.toLowerCase();
    found.push({ ...entry, name: entry.title.toLowerCase(), context });
  };
  for (const article of document.querySelectorAll('main article')) {
    const title = article.querySelector('h3')?.firstChild?.textContent?.trim() ?? '';
    const path = article.querySelector('.path');
    const verb = path?.querySelector('.verb')?.textContent ?? undefined;
    if (path === null || verb === undefined) {
      const about = article.querySelector('.about')?.textContent?.trim() ?? '';
      add({ kind: 'chapter', title, about, hash: `#${article.id}` });
      continue;
    }
    const about = path?.lastChild?.textContent?.trim() ?? '';
    add({ kind: 'route', title, about, verb, hash: `#${article.id}` });
    const seen = new Set<string>();
    for (const code of article.querySelectorAll('.field dt code')) {
      const name = code.textContent ?? '';
      if (seen.has(name)) continue;
      seen.add(name);
      const hash = `#${article.id}.${encodeURIComponent(name)}`;
      const kind = code.closest('.statuses') === null ? 'field' : 'answer';
      add({ kind, title: name, about: `${title}, ${about}`, hash });
    }
  }
  for (const row of document.querySelectorAll('tr[id^=error-]')) {
    const [status, code, meaning] = [...row.children].map((cell) => cell.textContent?.trim() ?? '');
    add({
      kind: 'error',
      title: code ?? '',
      about: meaning ?? '',
      verb: status ?? '',
      hash: `#${row.id}`,
    });
  }
  return found;
}

function best(entries: readonly Entry[], words: readonly string[]): Entry[] {
  const scored = entries.flatMap((entry) => {
    let score: number = WEIGHTS[entry.kind];
    for (const word of words) {
      const gained = gain(entry, word);
      if (gained === 0) return [];
      score += gained;
    }
    return [{ entry, score }];
  });
  return scored
    .sort((a, b) => b.score - a.score)
    .slice(0, MAX_FOUND)
    .map(({ entry }) => entry);
}

/** How well one word fits: the whole name, its beginning, the beginning of a word, anywhere. */
function gain({ name, context }: Entry, word: string): number {
  if (name === word) return 60;
  if (name.startsWith(word)) return 40;
  const at = name.indexOf(word);
  if (at > 0) return /[\s_/.-]/.test(name.charAt(at - 1)) ? 30 : 18;
  return context.includes(word) ? 6 : 0;
}

function option({ title, about, verb, kind, hash }: Entry, index: number): HTMLElement {
  const mark = kind === 'route' ? `verb ${(verb ?? '').toLowerCase()}` : 'kind';
  const label = kind === 'route' || kind === 'error' ? (verb ?? '') : kind;
  return make(
    'div',
    { role: 'option', id: `found-${index}`, 'aria-selected': 'false', 'data-hash': hash },
    make('span', { class: mark }, label),
    make('span', { class: 'name' }, title),
    make('span', { class: 'where' }, about),
  );
}

function nothing(query: string): HTMLElement {
  return make(
    'div',
    { role: 'option', 'aria-disabled': 'true', 'aria-selected': 'false', id: 'found-0' },
    make('span', { class: 'where' }, `Nothing here is called “${query.trim()}”`),
  );
}

/** Under the field, as wide as the screen allows. */
function place(list: HTMLElement, under: Element): void {
  const { left, bottom } = under.getBoundingClientRect();
  list.style.left = `${left}px`;
  list.style.top = `${bottom + 6}px`;
}
