/** A machine with a model server that responds like vLLM, and fails in the ways of model servers. */
import type net from 'node:net';
import { type HttpMessage, JSON_TYPE, LAST_CHUNK, chunkOf, responseOf, serveHttp } from './http.ts';
import { VideoStudio } from './video-studio.ts';
import { Machine, world } from './world.ts';

interface Asked {
  /** Only of embeddings. */
  readonly input?: readonly string[];
  readonly stream?: boolean;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
}

const OVERLOADED = '{"error":{"message":"overloaded"}}';
const FAILED_RESPONSES: Readonly<Record<string, string>> = {
  500: responseOf(500, JSON_TYPE, OVERLOADED),
  429: responseOf(429, JSON_TYPE, OVERLOADED),
  503: responseOf(503, JSON_TYPE, OVERLOADED),
  html: responseOf(200, 'text/html', '<html>Bad gateway</html>'),
};
const FAILURES = ['500', '429', '503', 'reset', 'hang', 'half', 'html', 'cut stream'] as const;
const PROMPT_TOKENS = 7;
const CHAT = { id: 'chatcmpl-1', created: 1, model: 'm' };
const VIDEOS = /^\w+ \/v1\/videos/;
/** Pauses within a stream; some streams outlast a round in which servers return unused leases. */
const PAUSES_MS = [30, 30, 1_000];

export class ModelServer {
  readonly machine: Machine;
  readonly port: number;
  /** One request in so many fails; 0 for none. Requests wait so long, beside their own time. */
  readonly faults = { failOnce: 0, slowMs: 0 };
  readonly #studio = new VideoStudio();

  constructor(port: number) {
    this.machine = new Machine(`model ${port}`);
    this.port = port;
  }

  start(): void {
    this.machine.run(() => {
      serveHttp(this.port, (request, socket) => void this.#respond(request, socket));
    });
  }

  async #respond(request: HttpMessage, socket: net.Socket): Promise<void> {
    const { head, body } = request;
    if (head.startsWith('get /v1/models')) {
      return void socket.write(responseOf(200, JSON_TYPE, '{"object":"list","data":[{"id":"m"}]}'));
    }
    const { random } = world();
    await world().sleep(random.between(5, 400) + this.faults.slowMs);
    const { failOnce } = this.faults;
    const fails = (): boolean => failOnce > 0 && random.once(failOnce);
    const failure = fails() ? random.pick(FAILURES) : undefined;
    // The work begins, even if its response is lost.
    const video = VIDEOS.test(head) ? this.#studio.respond(request, fails()) : undefined;
    if (failure === 'hang') return;
    if (failure === 'reset') return void socket.resetAndDestroy();
    const failed = FAILED_RESPONSES[failure ?? ''];
    if (failed !== undefined) return void socket.write(failed);
    const asked = video === undefined ? (JSON.parse(body) as Asked) : {}; // sent by our server
    if (asked.stream === true) return stream(socket, asked, failure === 'cut stream');
    const reply = video ?? responseOf(200, JSON_TYPE, JSON.stringify(resultOf(asked)));
    if (failure === undefined) return void socket.write(reply, 'latin1');
    socket.write(reply.slice(0, random.between(1, reply.length - 1)));
    await world().sleep(5);
    socket.resetAndDestroy();
  }
}

/** Every other response ends at its limit, so that it costs nearly as much as its hold. */
function tokensOf({ max_tokens: most, max_completion_tokens: limit = most ?? 16 }: Asked): number {
  const { random } = world();
  return random.once(2) ? limit : random.between(1, limit);
}

function usageOf(completion_tokens: number): object {
  const total_tokens = PROMPT_TOKENS + completion_tokens;
  return { prompt_tokens: PROMPT_TOKENS, completion_tokens, total_tokens };
}

/** Embeddings or a chat. */
function resultOf(asked: Asked): object {
  if (asked.input !== undefined) {
    const vector = { object: 'embedding', index: 0, embedding: [0.5, 0.25] };
    const data = asked.input.map((_, index) => ({ ...vector, index }));
    const usage = { prompt_tokens: PROMPT_TOKENS, total_tokens: PROMPT_TOKENS };
    return { object: 'list', model: 'e', data, usage };
  }
  const tokens = tokensOf(asked);
  const message = { role: 'assistant', content: 'word '.repeat(tokens) };
  return {
    ...CHAT,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: 'stop' }],
    usage: usageOf(tokens),
  };
}

async function stream(socket: net.Socket, asked: Asked, isCut: boolean): Promise<void> {
  const { random } = world();
  const tokens = tokensOf(asked);
  const eventOf = (part: object): string =>
    chunkOf(`data: ${JSON.stringify({ ...CHAT, object: 'chat.completion.chunk', ...part })}\n\n`);
  socket.write(responseOf(200, 'text/event-stream'));
  const pauseMs = random.pick(PAUSES_MS);
  const cutAfter = isCut ? random.between(0, tokens) : Infinity;
  for (let [sent, burst] = [0, 0]; sent < tokens && !socket.destroyed; sent += burst) {
    burst = random.between(1, tokens - sent);
    if (sent >= cutAfter) return void socket.resetAndDestroy();
    const delta = { role: 'assistant', content: 'word '.repeat(burst) };
    socket.write(eventOf({ choices: [{ index: 0, delta, finish_reason: null }] }));
    await world().sleep(random.between(0, pauseMs));
  }
  if (socket.destroyed) return;
  const last = eventOf({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  socket.write(
    `${last}${eventOf({ choices: [], usage: usageOf(tokens) })}${chunkOf('data: [DONE]\n\n')}${LAST_CHUNK}`,
  );
}
