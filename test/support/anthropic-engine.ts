/**
 * An emulation of Anthropic's Messages API on loopback: validates requests like the published API,
 * counts a prompt cache by its `cache_control` marks, and signs thinking. Responses are scripted.
 */
import { createHmac } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { endServer, listen } from './loopback.ts';

export type Block = Readonly<Record<string, unknown>>;

export interface Scripted {
  /** Thinking blocks are signed when they are sent. */
  readonly content: readonly Block[];
  readonly stop_reason?: string;
  readonly stop_sequence?: string;
  /** Default: a quarter of the bytes of the content. */
  readonly outputTokens?: number;
  /** Replaces the events of a stream. */
  readonly events?: readonly Block[];
  /** Bytes of the last event of a stream that are not sent. */
  readonly cutBytes?: number;
}

export interface Failure {
  readonly status: number;
  readonly error: { readonly type: string; readonly message: string };
}

export type Script = Scripted | Failure | ((body: Body, seen: Seen) => Scripted | Failure);

export interface Body {
  readonly model: string;
  readonly max_tokens: number;
  readonly stream?: boolean;
  readonly system?: string | readonly Block[];
  readonly tools?: readonly Block[];
  readonly tool_choice?: Block;
  readonly thinking?: Block;
  readonly messages: readonly { readonly role: string; readonly content: string | Block[] }[];
  readonly [name: string]: unknown;
}

export interface Usage {
  readonly input_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly cache_creation_input_tokens: number;
  readonly cache_creation: {
    readonly ephemeral_5m_input_tokens: number;
    readonly ephemeral_1h_input_tokens: number;
  };
  readonly output_tokens: number;
}

export interface Seen {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly body: Body;
  /** The bytes and the usage of the response; of an error only the bytes. */
  sent: string;
  usage?: Usage;
}

const KEY = 'key of the emulation';
const MEMBERS = new Set(
  (
    'model max_tokens messages system tools tool_choice stream stop_sequences temperature top_p ' +
    'top_k thinking output_config metadata service_tier context_management cache_control container'
  ).split(' '),
);
const BYTES_PER_TOKEN = 4;
const MAX_MARKS = 4;
/** A mark finds earlier entries at this many blocks before it. */
const LOOKBACK_BLOCKS = 20;
const BILLING_HEADER = 'x-anthropic-billing-header:';

export class AnthropicEngine {
  readonly seen: Seen[] = [];
  readonly script: Script[] = [];
  /** Whether responses pause between events. */
  pauseMs = 0;
  url = '';
  readonly #cached = new Set<string>();
  readonly #server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      void this.#respond(request.url ?? '', request.headers, text, response);
    });
  });

  static async start(): Promise<AnthropicEngine> {
    const engine = new AnthropicEngine();
    engine.url = `http://127.0.0.1:${await listen(engine.#server)}/v1`;
    return engine;
  }

  stop(): Promise<void> {
    return endServer(this.#server);
  }

  async #respond(
    path: string,
    headers: IncomingHttpHeaders,
    text: string,
    response: ServerResponse,
  ): Promise<void> {
    if (path.startsWith('/v1/models')) {
      const data = [{ type: 'model', id: 'claude', display_name: 'Claude' }];
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ data, has_more: false }));
      return;
    }
    const body = JSON.parse(text) as Body; // validated below
    const seen: Seen = { path, headers, text, body, sent: '' };
    this.seen.push(seen);
    const problem = problemOf(headers, body);
    const next = problem === undefined ? this.script.shift() : invalid(problem);
    const made = typeof next === 'function' ? next(body, seen) : next;
    if (made === undefined || 'error' in made) {
      const { status, error } = made ?? {
        status: 500,
        error: { type: 'api_error', message: 'No script' },
      };
      seen.sent = JSON.stringify({ type: 'error', error, request_id: 'req_1' });
      response.writeHead(status, { 'content-type': 'application/json' }).end(seen.sent);
      return;
    }
    const content = made.content.map(signed);
    const written = Math.max(
      1,
      Math.ceil(Buffer.byteLength(JSON.stringify(content)) / BYTES_PER_TOKEN),
    );
    const usage = { ...this.#inputOf(body), output_tokens: made.outputTokens ?? written };
    seen.usage = usage;
    const message = {
      model: body.model,
      id: `msg_${String(this.seen.length).padStart(24, '0')}`,
      type: 'message',
      role: 'assistant',
      content,
      stop_reason: made.stop_reason ?? stopOf(content),
      stop_sequence: made.stop_sequence ?? null,
      usage: { ...usage, service_tier: 'standard' },
    };
    if (body.stream !== true) {
      seen.sent = JSON.stringify(message);
      response.writeHead(200, { 'content-type': 'application/json' }).end(seen.sent);
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    const events = made.events ?? eventsOf(message);
    for (const [at, event] of events.entries()) {
      const whole = `event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`;
      const isLast = at === events.length - 1;
      const piece = isLast ? whole.slice(0, whole.length - (made.cutBytes ?? 0)) : whole;
      seen.sent += piece;
      response.write(piece);
      if (this.pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, this.pauseMs));
    }
    response.end();
  }

  /** Counts the prompt; a marked prefix is cached from then on. */
  #inputOf(body: Body): Omit<Usage, 'output_tokens'> {
    const blocks = blocksOf(body);
    let prefix = '';
    let tokens = 0;
    const ends = blocks.map((block) => {
      const { cache_control: mark, ...rest } = block;
      const text = JSON.stringify(rest);
      prefix = createHmac('sha256', prefix).update(text).digest('hex');
      tokens += Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
      return { prefix: `${body.model} ${prefix}`, tokens, mark: mark as Block | undefined };
    });
    let read = 0;
    for (const [at, { mark }] of ends.entries()) {
      if (mark === undefined) continue;
      for (let back = at; back >= Math.max(0, at - LOOKBACK_BLOCKS); back -= 1) {
        const end = ends[back];
        if (end === undefined || !this.#cached.has(end.prefix)) continue;
        read = Math.max(read, end.tokens);
        break;
      }
    }
    const written = { '5m': 0, '1h': 0 };
    let until = read;
    for (const end of ends) {
      if (end.mark === undefined) continue;
      this.#cached.add(end.prefix);
      if (end.tokens <= until) continue;
      written[end.mark['ttl'] === '1h' ? '1h' : '5m'] += end.tokens - until;
      until = end.tokens;
    }
    return {
      input_tokens: tokens - until,
      cache_read_input_tokens: read,
      cache_creation_input_tokens: written['5m'] + written['1h'],
      cache_creation: {
        ephemeral_5m_input_tokens: written['5m'],
        ephemeral_1h_input_tokens: written['1h'],
      },
    };
  }
}

/** The blocks of a prompt in the order of the cache: tools, system, messages. */
export function blocksOf({ tools = [], system = [], messages }: Body): Block[] {
  const texts = typeof system === 'string' ? [{ type: 'text', text: system }] : system;
  // The API leaves this block out of the prompt.
  const shown = texts.filter(({ text }) => !String(text).startsWith(BILLING_HEADER));
  return [
    ...tools,
    ...shown,
    ...messages.flatMap(({ role, content }) =>
      typeof content === 'string'
        ? [{ role, type: 'text', text: content }]
        : content.map((block) => ({ role, ...block })),
    ),
  ];
}

export function signatureOf(thinking: unknown): string {
  return createHmac('sha256', KEY).update(String(thinking)).digest('base64');
}

function signed(block: Block): Block {
  return block['type'] === 'thinking'
    ? { ...block, signature: signatureOf(block['thinking']) }
    : block;
}

function stopOf(content: readonly Block[]): string {
  return content.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn';
}

function invalid(message: string): Failure {
  return { status: 400, error: { type: 'invalid_request_error', message } };
}

function problemOf(headers: IncomingHttpHeaders, body: Body): string | undefined {
  if (headers['anthropic-version'] === undefined) return 'anthropic-version: header is required';
  for (const name of Object.keys(body)) {
    if (!MEMBERS.has(name)) return `${name}: Extra inputs are not permitted`;
  }
  if (!(body.max_tokens >= 1)) return 'max_tokens: Field required';
  const { thinking } = body;
  const budget = thinking?.['budget_tokens'];
  if (typeof budget === 'number' && budget >= body.max_tokens) {
    return '`max_tokens` must be greater than `thinking.budget_tokens`';
  }
  const isForced = body.tool_choice?.['type'] === 'any' || body.tool_choice?.['type'] === 'tool';
  const isOn = thinking !== undefined && thinking['type'] !== 'disabled';
  if (isOn && isForced) return 'Thinking may not be enabled when tool_choice forces tool use.';
  const marks = blocksOf(body).filter((block) => block['cache_control'] !== undefined);
  if (marks.length > MAX_MARKS) {
    return `A maximum of ${MAX_MARKS} blocks with cache_control may be provided. Found ${marks.length}.`;
  }
  return messagesProblem(body, typeof budget === 'number');
}

function messagesProblem({ messages }: Body, hasBudget: boolean): string | undefined {
  if (messages[0]?.role !== 'user') return 'messages: first message must use the "user" role';
  let open: readonly unknown[] = [];
  for (const [at, { role, content }] of messages.entries()) {
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
    const place = `messages.${at}`;
    if (blocks.length === 0) return `${place}: all messages must have non-empty content`;
    const results = blocks.filter(({ type }) => type === 'tool_result');
    const answered = results.map((block) => block['tool_use_id']);
    for (const id of open) {
      if (!answered.includes(id)) {
        return `${place}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${String(id)}`;
      }
    }
    for (const id of answered) {
      if (!open.includes(id)) return `${place}: unexpected \`tool_use_id\` ${String(id)}`;
    }
    for (const [index, block] of blocks.entries()) {
      const problem = blockProblem(block, role);
      if (problem !== undefined) return `${place}.content.${index}: ${problem}`;
    }
    const calls = blocks.filter(({ type }) => type === 'tool_use');
    open = calls.map((block) => block['id']);
    const isLastCall = role === 'assistant' && open.length > 0 && at === messages.length - 2;
    const first = String(blocks[0]?.['type']);
    if (hasBudget && isLastCall && !first.includes('thinking')) {
      return `${place}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${first}\`. When \`thinking\` is enabled, a final \`assistant\` message must start with a thinking block`;
    }
  }
  return undefined;
}

function blockProblem(block: Block, role: string): string | undefined {
  const { type, text, id, thinking, signature, data } = block;
  if (type === 'text' && String(text).trim() === '') {
    return 'text content blocks must contain non-whitespace text';
  }
  if (type === 'tool_use' && !/^[a-zA-Z0-9_-]+$/.test(String(id))) {
    return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'";
  }
  if (type === 'thinking' && (role !== 'assistant' || signature !== signatureOf(thinking))) {
    return 'Invalid `signature` in `thinking` block';
  }
  if (type === 'redacted_thinking' && !String(data).startsWith('redacted-')) {
    return 'Invalid `data` in `redacted_thinking` block';
  }
  return undefined;
}

const PIECE_CHARACTERS = 12;

function pieces(text: string): string[] {
  const characters = Array.from(text);
  const found: string[] = [];
  for (let at = 0; at < characters.length; at += PIECE_CHARACTERS) {
    found.push(characters.slice(at, at + PIECE_CHARACTERS).join(''));
  }
  return found;
}

interface SentMessage {
  readonly content: readonly Block[];
  readonly stop_reason: string;
  readonly stop_sequence: string | null;
  readonly usage: Block;
}

export function eventsOf(message: SentMessage): Block[] {
  const { content, stop_reason, stop_sequence, usage } = message;
  const start = { ...message, content: [], stop_reason: null, stop_sequence: null };
  const events: Block[] = [
    { type: 'message_start', message: { ...start, usage: { ...usage, output_tokens: 1 } } },
  ];
  for (const [index, block] of content.entries()) {
    const [empty, deltas] = partsOf(block);
    events.push({ type: 'content_block_start', index, content_block: empty });
    if (index === 0) events.push({ type: 'ping' });
    for (const delta of deltas) events.push({ type: 'content_block_delta', index, delta });
    events.push({ type: 'content_block_stop', index });
  }
  const { output_tokens } = usage;
  const delta = { stop_reason, stop_sequence };
  return [
    ...events,
    { type: 'message_delta', delta, usage: { output_tokens } },
    { type: 'message_stop' },
  ];
}

function partsOf(block: Block): readonly [empty: Block, deltas: readonly Block[]] {
  switch (block['type']) {
    case 'text': {
      const { citations = [], ...rest } = block;
      const cited = (citations as Block[]).map((citation) => ({
        type: 'citations_delta',
        citation,
      }));
      const said = pieces(String(block['text'])).map((text) => ({ type: 'text_delta', text }));
      return [{ ...rest, text: '' }, [...said, ...cited]];
    }
    case 'thinking': {
      const { thinking, signature } = block;
      const said = pieces(String(thinking)).map((text) => ({
        type: 'thinking_delta',
        thinking: text,
      }));
      const empty = { type: 'thinking', thinking: '', signature: '' };
      return [empty, [...said, { type: 'signature_delta', signature }]];
    }
    case 'tool_use': {
      const json = JSON.stringify(block['input']);
      const said = json === '{}' ? [''] : ['', ...pieces(json)];
      const deltas = said.map((text) => ({ type: 'input_json_delta', partial_json: text }));
      return [{ ...block, input: {} }, deltas];
    }
    default:
      return [block, []];
  }
}
