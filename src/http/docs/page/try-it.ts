/**
 * Calls from the page with the caller's key. The key is in the memory of this page alone: it is in no
 * storage, address or history, and goes to this server only.
 */
import type { TryBody, TryFacts, TryField, TryParameter } from '../try-facts.ts';
import { AnswerView } from './answer-view.ts';
import { button, make } from './dom.ts';

const HOUSE = 'Stays in this tab until it is closed or loaded anew, and goes to this server only.';

/** One key for every form of the page. */
class Keyring {
  secret = '';
  readonly #inputs: HTMLInputElement[] = [];

  field(label: string): { readonly element: HTMLElement; readonly input: HTMLInputElement } {
    // Outside of a form, so that no browser thinks of a sign-in and offers to keep it.
    const input = make('input', { type: 'password', autocomplete: 'off', spellcheck: 'false' });
    input.value = this.secret;
    this.#inputs.push(input);
    input.addEventListener('input', () => {
      this.secret = input.value.trim();
      for (const other of this.#inputs) if (other !== input) other.value = input.value;
    });
    return { element: labelled(label, input, HOUSE), input };
  }
}

let labels = 0;

/** A control under its label, with what there is to know of it. */
function labelled(label: string, control: HTMLElement, hint?: string): HTMLElement {
  labels += 1;
  control.id = `try-${labels}`;
  const about =
    hint === undefined ? [] : [make('p', { class: 'hint', id: `try-${labels}-hint` }, hint)];
  if (hint !== undefined) control.setAttribute('aria-describedby', `try-${labels}-hint`);
  return make(
    'div',
    { class: 'control' },
    make('label', { for: control.id }, label),
    control,
    ...about,
  );
}

export function startTryIt(): void {
  const keyring = new Keyring();
  for (const place of document.querySelectorAll<HTMLElement>('.try')) {
    const opener = place.querySelector<HTMLButtonElement>('.open');
    const written = place.querySelector('script')?.textContent;
    if (opener === null || !written) continue;
    place.hidden = false;
    let panel: HTMLElement | undefined;
    opener.addEventListener('click', () => {
      // What the server wrote beside the route.
      panel ??= place.appendChild(new Panel(JSON.parse(written) as TryFacts, keyring).element);
      const isOpen = opener.getAttribute('aria-expanded') !== 'true';
      opener.setAttribute('aria-expanded', String(isOpen));
      panel.hidden = !isOpen;
      if (isOpen) panel.querySelector<HTMLElement>('input, textarea, button')?.focus();
    });
  }
}

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

/** What can be sent, or a sentence that says what is missing. */
type Built = { readonly url: string; readonly init: RequestInit } | string;

class Panel {
  readonly element: HTMLElement;
  readonly #facts: TryFacts;
  readonly #keyring: Keyring;
  readonly #parameters: (readonly [TryParameter, Control])[] = [];
  readonly #key: HTMLInputElement | undefined;
  readonly #body: BodyForm | undefined;
  readonly #send: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly #sure: HTMLInputElement | undefined;
  readonly #problem = make('p', { class: 'problem', role: 'alert' });
  readonly #answer: AnswerView;
  #abort: AbortController | undefined;

  constructor(facts: TryFacts, keyring: Keyring) {
    this.#facts = facts;
    this.#keyring = keyring;
    this.#answer = new AnswerView(facts);
    const parts: Node[] = [];
    if (facts.credential === 'key' || facts.credential === 'admin') {
      const field = keyring.field(facts.credential === 'admin' ? 'ADMIN key' : 'API key');
      this.#key = field.input;
      parts.push(field.element);
    }
    if (facts.credential === 'wallet') parts.push(walletNote());
    parts.push(...this.#parameterControls());
    if (facts.bodies.length > 0) {
      this.#body = new BodyForm(facts.bodies);
      parts.push(this.#body.element);
    }
    if (facts.isPaid)
      parts.push(note('A request that succeeds is charged to the account of the key.'));
    const label = facts.credential === 'wallet' ? 'Send unsigned' : 'Send';
    this.#send = button(label, () => void this.#run(), { class: 'primary' });
    this.#stop = button('Stop', () => this.#abort?.abort(), { hidden: true });
    if (facts.isDestructive) {
      this.#sure = make('input', { type: 'checkbox' });
      parts.push(make('label', { class: 'sure' }, this.#sure, 'This cannot be undone: do it'));
      this.#send.classList.add('danger');
    }
    this.element = make(
      'div',
      { class: 'panel', role: 'group', 'aria-label': `Try ${facts.method} ${facts.path}` },
      ...parts,
      make('div', { class: 'actions' }, this.#send, this.#stop),
      this.#problem,
      this.#answer.element,
    );
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void this.#run();
    });
  }

  #parameterControls(): HTMLElement[] {
    const built = this.#facts.parameters.map((parameter) => {
      const control = controlOf(parameter, parameter.required ? parameter.example : undefined);
      if (!(control instanceof HTMLSelectElement)) {
        control.setAttribute('placeholder', parameter.example ?? '');
      }
      this.#parameters.push([parameter, control]);
      const name = parameter.required ? parameter.name : `${parameter.name} (${parameter.in})`;
      return { parameter, element: labelled(name, control) };
    });
    const needed = built.filter(({ parameter }) => parameter.required);
    const others = built.filter(({ parameter }) => !parameter.required);
    const shown = needed.map(({ element }) => element);
    if (others.length === 0) return shown;
    const more = make('details', {}, make('summary', {}, `Optional parameters (${others.length})`));
    more.append(...others.map(({ element }) => element));
    return [...shown, more];
  }

  async #run(): Promise<void> {
    if (this.#abort !== undefined) return;
    const built = this.#build();
    this.#problem.textContent = typeof built === 'string' ? built : '';
    if (typeof built === 'string') return;
    const abort = new AbortController();
    this.#abort = abort;
    this.#send.disabled = true;
    this.#stop.hidden = false;
    try {
      const init = { ...built.init, signal: abort.signal };
      const headers = this.#keyHeaders();
      await this.#answer.show(built.url, init, headers);
    } finally {
      this.#abort = undefined;
      this.#send.disabled = false;
      this.#stop.hidden = true;
      if (this.#sure !== undefined) this.#sure.checked = false;
    }
  }

  #keyHeaders(): Record<string, string> {
    return this.#key === undefined ? {} : { authorization: `Bearer ${this.#keyring.secret}` };
  }

  #build(): Built {
    const { facts, values } = { facts: this.#facts, values: this.#parameters };
    if (this.#key !== undefined && this.#keyring.secret === '') {
      this.#key.focus();
      return 'Enter a key first';
    }
    if (this.#sure?.checked === false) {
      this.#sure.focus();
      return 'Say that you mean it first';
    }
    let { path } = facts;
    const query = new URLSearchParams();
    const headers: Record<string, string> = {};
    for (const [{ name, in: place, required }, control] of values) {
      const value = control.value.trim();
      if (value === '') {
        if (!required) continue;
        control.focus();
        return `${name} is missing`;
      }
      if (place === 'path') path = path.replace(`{${name}}`, encodeURIComponent(value));
      else if (place === 'query') query.set(name, value);
      else headers[name] = value;
    }
    const body = this.#body?.read();
    if (typeof body === 'string') return body;
    if (body?.type !== undefined) headers['content-type'] = body.type;
    const url = query.size === 0 ? path : `${path}?${query.toString()}`;
    const init = { method: facts.method, headers, ...(body && { body: body.body }) };
    return { url, init };
  }
}

interface ReadBody {
  /** Missing for a form, whose type the browser writes. */
  readonly type: string | undefined;
  readonly body: string | FormData | File;
}

/** The body, as text, as the fields of a form, or as a file. */
class BodyForm {
  readonly element: HTMLElement;
  readonly #editors: readonly BodyEditor[];
  readonly #types = make('select');

  constructor(bodies: readonly TryBody[]) {
    this.#editors = bodies.map(editorOf);
    const show = (): void => {
      this.#editors.forEach(({ element, type }) => (element.hidden = type !== this.#types.value));
    };
    this.#types.append(...bodies.map(({ type }) => make('option', { value: type }, type)));
    this.#types.addEventListener('change', show);
    const choice = bodies.length > 1 ? [labelled('Type of the body', this.#types)] : [];
    this.element = make('div', {}, ...choice, ...this.#editors.map(({ element }) => element));
    show();
  }

  /** What is sent, or what is wrong with it. */
  read(): ReadBody | string {
    const editor = this.#editors.find(({ type }) => type === this.#types.value);
    return editor === undefined ? 'There is no body of this type' : editor.read();
  }
}

interface BodyEditor {
  readonly type: string;
  readonly element: HTMLElement;
  readonly read: () => ReadBody | string;
}

function editorOf(body: TryBody): BodyEditor {
  if (body.text !== undefined) return textEditor(body.type, body.text);
  if (body.fields !== undefined) return formEditor(body.type, body.fields);
  const input = make('input', { type: 'file' });
  const element = labelled('File', input);
  const read = (): ReadBody | string => {
    const file = input.files?.[0];
    return file === undefined ? 'Choose a file first' : { type: body.type, body: file };
  };
  return { type: body.type, element, read };
}

const MOST_ROWS = 18;

function textEditor(type: string, text: string): BodyEditor {
  const rows = String(Math.min(MOST_ROWS, text.split('\n').length + 1));
  const area = make('textarea', { rows, spellcheck: 'false', autocomplete: 'off' });
  area.value = text;
  const reset = button('Reset', () => (area.value = text), { class: 'quiet' });
  const element = labelled('Body', area);
  element.append(reset);
  const read = (): ReadBody | string => {
    try {
      JSON.parse(area.value);
    } catch (error) {
      area.focus();
      return `The body is no JSON: ${error instanceof Error ? error.message : String(error)}`;
    }
    return { type, body: area.value };
  };
  return { type, element, read };
}

function formEditor(type: string, fields: readonly TryField[]): BodyEditor {
  const controls = fields.map((field) => {
    const control = field.isFile ? make('input', { type: 'file' }) : controlOf(field, field.value);
    const name = field.required ? field.name : `${field.name} (optional)`;
    return { field, control, element: labelled(name, control) };
  });
  const element = make('div', {}, ...controls.map(({ element: one }) => one));
  const read = (): ReadBody | string => {
    const body = new FormData();
    for (const { field, control } of controls) {
      const files = control instanceof HTMLInputElement ? control.files : null;
      const given = field.isFile ? [...(files ?? [])] : [control.value].filter(Boolean);
      if (given.length === 0 && field.required) {
        control.focus();
        return field.isFile ? `Choose a file for ${field.name}` : `${field.name} is missing`;
      }
      for (const one of given) body.append(field.name, one);
    }
    return { type: undefined, body };
  };
  return { type, element, read };
}

function controlOf(
  { values, required }: { readonly values?: readonly string[]; readonly required: boolean },
  value: string | undefined,
): Control {
  if (values === undefined) {
    const input = make('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
    input.value = value ?? '';
    return input;
  }
  const none = required ? [] : [make('option', { value: '' }, '–')];
  const options = values.map((one) => make('option', { value: one }, one));
  const select = make('select', {}, ...none, ...options);
  if (value !== undefined) select.value = value;
  return select;
}

function note(text: string): HTMLElement {
  return make('p', { class: 'note' }, text);
}

function walletNote(): HTMLElement {
  const element = note('A wallet has to sign this, which this page does not do: ');
  element.append(
    make('a', { href: '#wallets' }, 'how wallets call'),
    '. Unsigned, the answer says what there is to sign.',
  );
  return element;
}
