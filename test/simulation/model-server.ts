/** A machine with a model server that responds like vLLM, and fails in the ways of model servers. */
import type net from 'node:net';
import { type HttpMessage, JSON_TYPE, LAST_CHUNK, chunkOf, responseOf, serveHttp } from './http.ts';
import { Machine, world } from './world.ts';

export interface ModelFaults {
  /** One request in so many fails; 0 for none. */
  failOnce: number;
  /** Requests wait so long, beside their own time. */
  slowMs: number;
}

interface Asked {
  /** Only of embeddings. */
  readonly input?: readonly string[];
  readonly stream?: boolean;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
}

const FAILURES = ['500', '429', '503', 'reset', 'hang', 'half', 'html', 'cut stream'] as const;
const PROMPT_TOKENS = 7;
/** Pauses within a stream; some streams outlast a round in which servers return unused leases. */
const PAUSES_MS = [30, 30, 1_000];

export class ModelServer {
  readonly machine: Machine;
  readonly port: number;
  readonly faults: ModelFaults = { failOnce: 0, slowMs: 0 };

  constructor(port: number) {
    this.machine = new Machine(`model ${port}`);
    this.port = port;
  }

  start(): void {
    this.machine.run(() => {
      serveHttp(this.port, (request, socket) => void this.#respond(request, socket));
    });
  }

  async #respond({ head, body }: HttpMessage, socket: net.Socket): Promise<void> {
    if (head.startsWith('get ')) {
      return void socket.write(responseOf(200, JSON_TYPE, '{"object":"list","data":[{"id":"m"}]}'));
    }
    const asked = JSON.parse(body) as Asked; // sent by our server
    const { random } = world();
    await world().sleep(random.between(5, 400) + this.faults.slowMs);
    const limit = asked.max_completion_tokens ?? asked.max_tokens ?? 16;
    const tokens = random.between(1, limit);
    const failure =
      this.faults.failOnce > 0 && random.once(this.faults.failOnce)
        ? random.pick(FAILURES)
        : undefined;
    if (failure === 'hang') return;
    if (failure === 'reset') return void socket.resetAndDestroy();
    if (failure === 'html') {
      return void socket.write(responseOf(200, 'text/html', '<html>Bad gateway</html>'));
    }
    if (failure === '500' || failure === '429' || failure === '503') {
      const reason = '{"error":{"message":"overloaded"}}';
      return void socket.write(responseOf(Number(failure), JSON_TYPE, reason));
    }
    const usage = {
      prompt_tokens: PROMPT_TOKENS,
      completion_tokens: tokens,
      total_tokens: PROMPT_TOKENS + tokens,
    };
    if (asked.input !== undefined) {
      return void socket.write(responseOf(200, JSON_TYPE, embeddingsOf(asked.input)));
    }
    if (asked.stream === true) return stream(socket, tokens, usage, failure === 'cut stream');
    const message = { role: 'assistant', content: 'word '.repeat(tokens) };
    const reply = responseOf(
      200,
      JSON_TYPE,
      JSON.stringify({
        id: 'chatcmpl-1',
        object: 'chat.completion',
        created: 1,
        model: 'm',
        choices: [{ index: 0, message, finish_reason: 'stop' }],
        usage,
      }),
    );
    if (failure === undefined) return void socket.write(reply);
    socket.write(reply.slice(0, random.between(1, reply.length - 1)));
    await world().sleep(5);
    socket.resetAndDestroy();
  }
}

function embeddingsOf(input: readonly string[]): string {
  const data = input.map((_, index) => ({ object: 'embedding', index, embedding: [0.5, 0.25] }));
  const usage = { prompt_tokens: PROMPT_TOKENS, total_tokens: PROMPT_TOKENS };
  return JSON.stringify({ object: 'list', model: 'e', data, usage });
}

async function stream(
  socket: net.Socket,
  tokens: number,
  usage: object,
  isCut: boolean,
): Promise<void> {
  const { random } = world();
  const eventOf = (part: object): string =>
    chunkOf(
      `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', ...part })}\n\n`,
    );
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
    `${last}${eventOf({ choices: [], usage })}${chunkOf('data: [DONE]\n\n')}${LAST_CHUNK}`,
  );
}
