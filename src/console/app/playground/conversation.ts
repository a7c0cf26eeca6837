/**
 * The conversation of the chat tab: messages, the streamed response, and the cost of each. It lasts as
 * long as the page is open.
 */
import { signal } from '@preact/signals';
import { ApiError, call, errorOf, send } from '../api.ts';
import { SERVICE } from '../page-facts.ts';
import type { RequestBody } from '../request-history.ts';
import type { Cost, Receipt } from '../shapes.ts';
import { eventsOf } from './sse.ts';

export interface Attachment {
  readonly name: string;
  readonly type: string;
  readonly url: string;
}

export interface Citation {
  readonly title?: string;
  readonly url: string;
  readonly content?: string;
  readonly date?: string;
}

export interface Turn {
  readonly id: number;
  readonly role: 'user' | 'assistant';
  readonly text: string;
  readonly attachments?: readonly Attachment[];
  readonly thinking?: string;
  readonly citations?: readonly Citation[];
  readonly isRunning?: boolean;
  readonly wasStopped?: boolean;
  readonly error?: ApiError;
  readonly requestId?: string;
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly cost?: Partial<Cost>;
  readonly firstTokenMs?: number;
  readonly tookMs?: number;
  readonly body?: Readonly<Record<string, unknown>>;
}

export interface Options {
  readonly model: string;
  readonly system: string;
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly search: 'off' | 'auto' | 'on';
}

export const turns = signal<readonly Turn[]>([]);
let running: AbortController | undefined;
let nextId = 1;

export function clearConversation(): void {
  stop();
  turns.value = [];
}

interface SentMessage {
  readonly role: string;
  readonly content: unknown;
}

/** Shows the messages of an earlier request, without its last one, whose text it returns. */
export function openConversation(body: RequestBody): {
  readonly system: string;
  readonly text: string;
} {
  stop();
  const messages = body['messages'] as readonly SentMessage[]; // stored by this tab
  const textOf = (message: SentMessage | undefined): string =>
    typeof message?.content === 'string' ? message.content : '';
  const [first] = messages;
  const isSystem = first?.role === 'system';
  turns.value = messages.slice(isSystem ? 1 : 0, -1).map((message) => ({
    id: nextId++,
    role: message.role === 'user' ? 'user' : 'assistant',
    text: textOf(message),
  }));
  return { system: isSystem ? textOf(first) : '', text: textOf(messages.at(-1)) };
}

/** Aborts the running response. Its text so far stays and is charged. */
export function stop(): void {
  running?.abort();
}

/** Sends a message and returns the response when it has ended. Never rejects. */
export async function sendMessage(
  text: string,
  attachments: readonly Attachment[],
  options: Options,
): Promise<Turn | undefined> {
  const question: Turn = { id: nextId++, role: 'user', text, attachments };
  turns.value = [...turns.peek(), question];
  return respond(options);
}

export async function regenerate(options: Options): Promise<Turn | undefined> {
  const before = turns.peek();
  const last = before.findLastIndex(({ role }) => role === 'user');
  if (last === -1) return undefined;
  turns.value = before.slice(0, last + 1);
  return respond(options);
}

async function respond(options: Options): Promise<Turn | undefined> {
  const body = bodyOf(turns.peek(), options);
  const id = nextId++;
  const startedMs = performance.now();
  turns.value = [...turns.peek(), { id, role: 'assistant', text: '', isRunning: true, body }];
  const abort = new AbortController();
  running = abort;
  try {
    await stream(id, body, abort.signal, startedMs);
  } catch (error) {
    if (!abort.signal.aborted) change(id, { error: ApiError.of(error) });
  } finally {
    running = undefined;
    const wasStopped = abort.signal.aborted;
    change(id, { isRunning: false, wasStopped, tookMs: performance.now() - startedMs });
    if (wasStopped) await findReceipt(id);
  }
  return turns.peek().find((turn) => turn.id === id);
}

export function bodyOf(all: readonly Turn[], options: Options): Record<string, unknown> {
  const { model, system, parameters, search } = options;
  const messages = all
    .filter(
      ({ text, error, attachments = [] }) =>
        error === undefined && (text !== '' || attachments.length > 0),
    )
    .map((turn) => ({ role: turn.role, content: contentOf(turn) }));
  const own = { enable_web_search: search, enable_web_citations: true };
  return {
    model,
    messages: system.trim() === '' ? messages : [{ role: 'system', content: system }, ...messages],
    stream: true,
    ...parameters,
    ...(search === 'off' ? {} : { [`${SERVICE}_parameters`]: own }),
  };
}

function contentOf({ text, attachments = [] }: Turn): unknown {
  if (attachments.length === 0) return text;
  const parts = attachments.map(({ name, type, url }) => {
    if (type.startsWith('image/')) return { type: 'image_url', image_url: { url } };
    return { type: 'file', file: { filename: name, file_data: url } };
  });
  return text === '' ? parts : [...parts, { type: 'text', text }];
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: {
      readonly content?: string | null;
      readonly reasoning_content?: string | null;
    };
  }[];
  readonly usage?: Turn['usage'] | null;
  readonly cost?: Partial<Cost>;
  readonly error?: unknown;
  readonly [other: string]: unknown;
}

async function stream(
  id: number,
  body: Readonly<Record<string, unknown>>,
  abort: AbortSignal,
  startedMs: number,
): Promise<void> {
  const response = await send('/chat/completions', { method: 'POST', body, signal: abort });
  change(id, { requestId: response.headers.get('x-request-id') ?? undefined });
  if (!response.ok) throw await errorOf(response);
  if (response.body === null) return;
  let text = '';
  let thinking = '';
  let isFirst = true;
  let isWaiting = false;
  // Renders at most once per frame.
  const show = (): void => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      change(id, { text, thinking });
    });
  };
  for await (const event of eventsOf(response.body)) {
    const chunk = event as Chunk; // documented by the route
    if (chunk.error !== undefined) throw streamError(chunk);
    const delta = chunk.choices?.[0]?.delta;
    if (isFirst && (delta?.content || delta?.reasoning_content)) {
      isFirst = false;
      change(id, { firstTokenMs: performance.now() - startedMs });
    }
    text += delta?.content ?? '';
    thinking += delta?.reasoning_content ?? '';
    const own = chunk[`${SERVICE}_parameters`] as
      | { web_search_citations?: readonly Citation[] }
      | undefined;
    const found = own?.web_search_citations;
    if (found !== undefined && found.length > 0) change(id, { citations: found });
    if (chunk.usage) change(id, { usage: chunk.usage, cost: chunk.cost });
    show();
  }
  change(id, { text, thinking });
}

/** An error inside a stream: `{"error": "…", "code": "…"}`, or the error object of OpenAI. */
function streamError({ error, code }: Chunk): ApiError {
  const message =
    typeof error === 'object' && error !== null ? (error as { message?: unknown }).message : error;
  return new ApiError(500, typeof code === 'string' ? code : 'STREAM_FAILED', String(message));
}

const RECEIPT_TRIES = 6;
const RECEIPT_PAUSE_MS = 400;

/** Loads the cost of a stopped response, whose receipt exists some moments later. */
async function findReceipt(id: number): Promise<void> {
  const requestId = turns.peek().find((turn) => turn.id === id)?.requestId;
  if (requestId === undefined) return;
  for (let attempt = 0; attempt < RECEIPT_TRIES; attempt += 1) {
    await new Promise((resolve) => setTimeout(resolve, RECEIPT_PAUSE_MS));
    try {
      const { data } = await call<{ data: readonly Receipt[] }>(
        `/usage/requests?requestId=${requestId}`,
      );
      const [receipt] = data;
      if (receipt === undefined) continue;
      const { cost, tokens } = receipt;
      change(id, {
        cost,
        usage: { prompt_tokens: tokens.prompt, completion_tokens: tokens.completion },
      });
      return;
    } catch {
      // The activity page also shows the cost.
    }
  }
}

function change(id: number, changes: Partial<Turn>): void {
  turns.value = turns.peek().map((turn) => (turn.id === id ? { ...turn, ...changes } : turn));
}
