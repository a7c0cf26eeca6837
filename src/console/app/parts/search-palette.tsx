/**
 * The search over all parts of the console, opened by a button or Ctrl-K (⌘K): pages, models, keys, a request by its id,
 * and for operators accounts and sections of the configuration.
 */
import { useLocation } from 'preact-iso';
import { useEffect, useId, useState } from 'preact/hooks';
import { query } from '../api.ts';
import { useKeyNames, useModels } from '../lookups.ts';
import { useCall } from '../resource.ts';
import { isOperator, listsKeys } from '../session.ts';
import type { AccountList, ConfigSections } from '../shapes.ts';
import { Overlay } from './overlay.tsx';

export interface FoundItem {
  readonly kind: string;
  readonly title: string;
  readonly to: string;
}

const MAX_SHOWN = 12;
const MAX_OF_KIND = 5;
const TYPING_PAUSE_MS = 150;
const REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{7,127}$/;

/** `pages`: path and name of each page that the session can open. */
export function SearchPalette({ pages }: { pages: readonly (readonly [string, string])[] }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return (
    <>
      <button type="button" class="find small" onClick={() => setOpen(true)}>
        Search <kbd>{/Mac|iPhone|iPad/.test(navigator.platform) ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      {isOpen && <Palette pages={pages} close={() => setOpen(false)} />}
    </>
  );
}

interface PaletteProps {
  readonly pages: readonly (readonly [string, string])[];
  readonly close: () => void;
}

function Palette({ pages, close }: PaletteProps) {
  const { route } = useLocation();
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const id = useId();
  const items = useItems(pages, text.trim());
  const chosen = items[Math.min(at, items.length - 1)];
  const go = (item: FoundItem | undefined): void => {
    if (item === undefined) return;
    close();
    if (item.to.startsWith('/console')) route(item.to);
    else location.assign(item.to);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter') go(chosen);
    else if (step === undefined || items.length === 0) return;
    else setAt((Math.min(at, items.length - 1) + step + items.length) % items.length);
    event.preventDefault();
  };
  return (
    <Overlay title="Search" close={close}>
      <div class="palette">
        <input
          type="search"
          role="combobox"
          list={undefined}
          aria-label="Search the console"
          aria-expanded="true"
          aria-controls={id}
          aria-activedescendant={
            chosen === undefined ? undefined : `${id}-${items.indexOf(chosen)}`
          }
          placeholder="Page, model, account, request id …"
          autoFocus
          value={text}
          onKeyDown={onKeyDown}
          onInput={({ currentTarget }) => {
            setText(currentTarget.value);
            setAt(0);
          }}
        />
        <ul id={id} role="listbox" aria-label="Results">
          {items.map((item, index) => (
            <li
              key={item.kind + item.to}
              id={`${id}-${index}`}
              role="option"
              aria-selected={item === chosen}
              onClick={() => go(item)}
            >
              <span class="text">{item.title}</span>
              <span class="soft">{item.kind}</span>
            </li>
          ))}
        </ul>
        {items.length === 0 && <p class="hint">Nothing matches.</p>}
      </div>
    </Overlay>
  );
}

function useItems(pages: PaletteProps['pages'], text: string): readonly FoundItem[] {
  const models = useModels();
  const keys = useKeyNames(listsKeys.value);
  const asked = usePaused(text);
  const operator = isOperator.value;
  const accounts = useCall<AccountList>(
    operator && asked !== '' ? `/admin/accounts${query({ search: asked, limit: '5' })}` : undefined,
  );
  const sections = useCall<ConfigSections>(operator ? '/admin/config/sections' : undefined);
  const matching = (items: readonly FoundItem[], most = MAX_OF_KIND): readonly FoundItem[] =>
    items.filter(({ title }) => title.toLowerCase().includes(text.toLowerCase())).slice(0, most);
  const found = matching(
    pages.map(([to, title]) => ({ kind: 'Page', title, to })),
    MAX_SHOWN,
  );
  if (text === '') return found;
  return [
    ...found,
    ...matching(models.map(({ id }) => modelItem(id))),
    ...matching([...keys].map(([, title]) => ({ kind: 'API key', title, to: '/console/keys' }))),
    ...(accounts.data?.data ?? []).map(({ id, name }) => ({
      kind: 'Account',
      title: name === '' ? id : name,
      to: `/console/operator/accounts${query({ open: id })}`,
    })),
    ...matching(
      (sections.data?.sections ?? []).map(({ name }) => ({
        kind: 'Configuration',
        title: name,
        to: `/console/operator/configuration${query({ open: name })}`,
      })),
    ),
    ...(REQUEST_ID.test(text) && /\d/.test(text) ? [requestItem(text, operator)] : []),
  ].slice(0, MAX_SHOWN);
}

function modelItem(id: string): FoundItem {
  return { kind: 'Model', title: id, to: `/console/models${query({ open: id })}` };
}

function requestItem(id: string, operator: boolean): FoundItem {
  const page = operator ? '/console/operator/requests' : '/console/activity';
  return { kind: 'Request', title: id, to: page + query({ open: id }) };
}

/** The text after a pause in typing. */
function usePaused(text: string): string {
  const [paused, setPaused] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setPaused(text), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return paused;
}
