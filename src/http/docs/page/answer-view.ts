/**
 * An answer as it comes: status, times, size, what it cost, the headers that matter, and its body as
 * text, as a stream, or as a picture, a sound or a film. Everything is shown as text or as bytes of a
 * media type; nothing of an answer becomes markup.
 */
import type { TryFacts } from '../try-facts.ts';
import { copy, button, make } from './dom.ts';
import { dataOfEvents } from './event-stream.ts';

/** What a page shows of one body; the rest is counted. */
const MAX_SHOWN_CHARS = 400_000;
/** Headers that say nothing of this answer. */
const USUAL =
  /^(?:date|connection|keep-alive|vary|server|transfer-encoding|content-encoding|cf-ray|cache-control|x-content-type-options|access-control-.*|.*-(?:version|timestamp|host-name))$/;
/** The receipt of a request that was stopped is written when its engine has ended. */
const RECEIPT_TRIES = 6;
const RECEIPT_PAUSE_MS = 400;

const usd = new Intl.NumberFormat('en-US', {
  style: 'currency',
  currency: 'USD',
  maximumFractionDigits: 9,
});

interface Cost {
  readonly usd?: number | string;
  readonly diem?: number | string;
}

/** Members of answers and events that are shown beside the text of them. */
interface Known {
  readonly cost?: Cost;
  /** What ended a stream, in a sentence or as OpenAI's object. */
  readonly error?: string | { readonly message?: string };
  readonly type?: string;
  readonly delta?: string | { readonly text?: string };
  readonly response?: { readonly cost?: Cost };
  readonly choices?: readonly {
    readonly text?: string;
    readonly delta?: { readonly content?: string | null };
  }[];
}

export class AnswerView {
  readonly element = make('section', { class: 'answer', 'aria-label': 'Answer', hidden: true });
  readonly #facts: TryFacts;
  readonly #line = make('p', { class: 'outcome', role: 'status' });
  readonly #body = make('div', { class: 'body' });
  #blobUrl: string | undefined;

  constructor(facts: TryFacts) {
    this.#facts = facts;
  }

  /** Asks, and shows what comes until it ends or is stopped. Never throws. */
  async show(url: string, init: RequestInit, key: Record<string, string>): Promise<void> {
    this.#clear();
    const started = performance.now();
    const facts: string[] = [];
    const tell = (size = ''): void => {
      this.#line.lastElementChild?.replaceChildren([...facts, size].filter(Boolean).join(' · '));
    };
    const took = (): string => msText(performance.now() - started);
    let answer: Response | undefined;
    let known: Known | undefined;
    try {
      answer = await fetch(url, {
        ...init,
        headers: { ...(init.headers as Record<string, string>), ...key }, // built by the panel
        credentials: 'omit',
        cache: 'no-store',
        redirect: 'manual',
      });
      this.#begin(answer);
      facts.push(`${took()} to the first byte`);
      tell();
      let size = '';
      known = await this.#read(answer, (now) => {
        size = now;
        tell(size);
      });
      facts.push(`${took()} in all`);
      tell(size);
    } catch (error) {
      const isStopped = error instanceof DOMException && error.name === 'AbortError';
      const reason = error instanceof Error ? error.message : String(error);
      facts.push(isStopped ? `stopped after ${took()}` : reason);
      tell();
    }
    const cost = known?.cost ?? known?.response?.cost;
    await this.#tellCost(cost, answer, key);
  }

  #clear(): void {
    if (this.#blobUrl !== undefined) URL.revokeObjectURL(this.#blobUrl);
    this.#blobUrl = undefined;
    this.#line.replaceChildren(make('span', {}, 'Waiting for the answer'));
    this.#body.replaceChildren();
    this.element.replaceChildren(this.#line, this.#body);
    this.element.hidden = false;
  }

  #begin({ status, statusText, headers }: Response): void {
    const tone = status < 300 ? 'good' : 'bad';
    const code = make('span', { class: `code ${tone}` }, `${status} ${statusText}`.trim());
    this.#line.replaceChildren(code, ' ', make('span'));
    const rows = [...headers].filter(([name]) => !USUAL.test(name));
    const list = make('dl', { class: 'headers' });
    for (const [name, value] of rows) {
      list.append(make('div', {}, make('dt', {}, name), make('dd', {}, value)));
    }
    const shown = make('details', {}, make('summary', {}, `Headers (${rows.length})`), list);
    this.element.insertBefore(shown, this.#body);
  }

  /** The body, until its end; what is known of it then. */
  async #read(answer: Response, tell: (size: string) => void): Promise<Known | undefined> {
    const type = answer.headers.get('content-type') ?? '';
    if (type.startsWith('text/event-stream') && answer.body !== null) {
      return this.#stream(answer.body, tell);
    }
    if (/^(?:image|audio|video)\/|octet-stream|\/zip|\/pdf/.test(type)) {
      const blob = await answer.blob();
      tell(sizeText(blob.size));
      this.#media(blob, type);
      return undefined;
    }
    const text = await answer.text();
    tell(sizeText(new Blob([text]).size));
    if (text === '') return undefined;
    const value = type.startsWith('application/json') ? parsed(text) : undefined;
    this.#text(value === undefined ? text : JSON.stringify(value, null, 2));
    return value as Known | undefined; // any JSON; its members are looked at one by one
  }

  #text(text: string): void {
    const cut = text.length > MAX_SHOWN_CHARS;
    const pre = make('pre', { tabindex: '0', 'aria-label': 'What was answered' });
    pre.textContent = cut ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text;
    const title = make('div', { class: 'title' }, make('span', {}, 'Body'));
    title.append(button('Copy', (from) => void copy(text, from)));
    this.#body.append(make('div', { class: 'sample' }, title, pre));
  }

  #media(blob: Blob, type: string): void {
    // A picture is drawn, never opened: what an SVG holds does not run.
    this.#blobUrl = URL.createObjectURL(blob);
    const [kind = ''] = type.split('/');
    const src = this.#blobUrl;
    if (kind === 'image') this.#body.append(make('img', { src, alt: 'The answer' }));
    else if (kind === 'audio') this.#body.append(make('audio', { src, controls: true }));
    else if (kind === 'video') this.#body.append(make('video', { src, controls: true }));
    const ending = /\/([a-z0-9]+)/.exec(type)?.[1] ?? 'bin';
    const name = `answer.${ending === 'octet' ? 'bin' : ending}`;
    this.#body.append(make('p', {}, make('a', { href: src, download: name }, `Save ${name}`)));
  }

  /** The text that the events say, and the events themselves. */
  async #stream(
    body: ReadableStream<Uint8Array>,
    tell: (size: string) => void,
  ): Promise<Known | undefined> {
    const said = make('div', { class: 'said', 'aria-live': 'off', hidden: true });
    const events = make('pre', { tabindex: '0', 'aria-label': 'Events' });
    const summary = make('summary', {}, 'Events');
    // A stream that is no answer to a request has nothing else to show.
    const details = make('details', { open: this.#facts.method === 'GET' }, summary, events);
    this.#body.append(said, details);
    const [words, lines] = [new Growing(said), new Growing(events)];
    let count = 0;
    let last: Known | undefined;
    for await (const data of dataOfEvents(body)) {
      count += 1;
      lines.add(`${data}\n`);
      const event = parsed(data) as Known | undefined; // any JSON, as above
      const text = event && textOf(event);
      if (text) {
        said.hidden = false;
        words.add(text);
      }
      if ((event?.cost ?? event?.response?.cost) !== undefined) last = event;
      if (event?.error) this.#body.append(make('p', { class: 'problem' }, reasonOf(event.error)));
      summary.textContent = `Events (${count})`;
      tell(`${count} events`);
    }
    return last;
  }

  /** From the answer, else from the receipt of the request. */
  async #tellCost(
    cost: Cost | undefined,
    answer: Response | undefined,
    key: Record<string, string>,
  ): Promise<void> {
    const isCharged = this.#facts.isPaid && answer?.ok === true;
    const given = cost ?? (isCharged ? await receiptCost(answer, key) : undefined);
    if (given === undefined) return;
    const parts = [usd.format(Number(given.usd ?? 0))];
    if (Number(given.diem ?? 0) > 0) parts.push(`${given.diem} diem`);
    this.#line.append(' · ', make('strong', { class: 'cost' }, parts.join(' and ')));
  }
}

/** Grows by what comes, one change of the page a frame. */
class Growing {
  readonly #element: HTMLElement;
  #waiting = '';
  #shown = 0;

  constructor(element: HTMLElement) {
    this.#element = element;
  }

  add(text: string): void {
    const room = MAX_SHOWN_CHARS - this.#shown;
    if (room <= 0) return;
    this.#shown += text.length;
    const isFirst = this.#waiting === '';
    this.#waiting += text.length > room ? `${text.slice(0, room)}…` : text;
    if (isFirst) requestAnimationFrame(() => this.#write());
  }

  #write(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#element;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.#element.append(this.#waiting);
    this.#waiting = '';
    if (isAtEnd) this.#element.scrollTop = this.#element.scrollHeight;
  }
}

/** What an event says to a reader, in the three protocols of chat. */
function textOf({ choices, delta, type }: Known): string {
  const [choice] = choices ?? [];
  if (choice !== undefined) return choice.delta?.content ?? choice.text ?? '';
  if (type === 'response.output_text.delta' && typeof delta === 'string') return delta;
  return typeof delta === 'object' ? (delta.text ?? '') : '';
}

function reasonOf(error: NonNullable<Known['error']>): string {
  return typeof error === 'string' ? error : (error.message ?? JSON.stringify(error));
}

async function receiptCost(
  answer: Response,
  headers: Record<string, string>,
): Promise<Cost | undefined> {
  const id = answer.headers.get('x-request-id') ?? '';
  const base = document.documentElement.dataset['base'] ?? '';
  for (let tried = 0; tried < RECEIPT_TRIES; tried += 1) {
    try {
      const found = await fetch(`${base}/usage/requests?requestId=${encodeURIComponent(id)}`, {
        headers,
        credentials: 'omit',
        cache: 'no-store',
      });
      if (!found.ok) return undefined;
      const { data } = (await found.json()) as { data: readonly Known[] }; // by the document
      if (data[0]?.cost !== undefined) return data[0].cost;
    } catch {
      // The answer is there; only its cost is not.
      return undefined;
    }
    await new Promise((resolve) => setTimeout(resolve, RECEIPT_PAUSE_MS));
  }
  return undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // `[DONE]`, and what is no JSON, is shown as it is.
    return undefined;
  }
}

function msText(ms: number): string {
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

function sizeText(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
