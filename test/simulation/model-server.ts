/** A machine with a model server that responds like vLLM, and fails in the ways of model servers. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { type Machine, world } from './world.ts';

export interface ModelFaults {
  /** One request in so many fails; 0 for none. */
  failOnce: number;
  /** Requests wait so long, beside their own time. */
  slowMs: number;
}

interface Asked {
  readonly stream?: boolean;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
}

const FAILURES = ['500', '429', '503', 'reset', 'hang', 'half', 'html', 'cut stream'] as const;
const PROMPT_TOKENS = 7;
/** Tokens of one event of a stream. */
const MAX_BURST = 8;

export class ModelServer {
  readonly machine: Machine;
  readonly port: number;
  readonly faults: ModelFaults = { failOnce: 0, slowMs: 0 };

  constructor(name: string, port: number) {
    this.machine = world().machine(name);
    this.port = port;
  }

  start(): void {
    world().on(this.machine, () => {
      const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
        void this.#respond(request, response);
      });
      server.listen({ port: this.port });
    });
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => undefined); // its reader left
    if (request.method === 'GET') return void response.end('{"object":"list","data":[{"id":"m"}]}');
    const body = JSON.parse(await text(request)) as Asked; // sent by our server
    const { random } = world();
    await world().sleep(random.between(5, 400) + this.faults.slowMs);
    const limit = body.max_completion_tokens ?? body.max_tokens ?? 16;
    const tokens = random.between(1, limit);
    const failure =
      this.faults.failOnce > 0 && random.once(this.faults.failOnce)
        ? random.pick(FAILURES)
        : undefined;
    if (failure === 'hang') return;
    if (failure === 'reset') return void response.socket?.resetAndDestroy();
    if (failure === 'html') return void response.end('<html>Bad gateway</html>');
    if (failure === '500' || failure === '429' || failure === '503') {
      response.writeHead(Number(failure), { 'content-type': 'application/json' });
      return void response.end('{"error":{"message":"overloaded"}}');
    }
    const usage = {
      prompt_tokens: PROMPT_TOKENS,
      completion_tokens: tokens,
      total_tokens: PROMPT_TOKENS + tokens,
    };
    if (body.stream === true) return stream(response, tokens, usage, failure === 'cut stream');
    const reply = JSON.stringify({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'word '.repeat(tokens) },
          finish_reason: 'stop',
        },
      ],
      usage,
    });
    response.setHeader('content-type', 'application/json');
    if (failure === undefined) return void response.end(reply);
    response.setHeader('content-length', reply.length);
    response.write(reply.slice(0, reply.length / 2));
    await world().sleep(5);
    response.socket?.resetAndDestroy();
  }
}

async function stream(
  response: ServerResponse,
  tokens: number,
  usage: object,
  isCut: boolean,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (part: object): void => {
    response.write(
      `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', ...part })}\n\n`,
    );
  };
  const cutAfter = isCut ? world().random.between(0, tokens) : Infinity;
  for (let [sent, burst] = [0, 0]; sent < tokens; sent += burst) {
    burst = world().random.between(1, Math.min(MAX_BURST, tokens - sent));
    if (sent >= cutAfter) return void response.socket?.resetAndDestroy();
    send({
      choices: [
        {
          index: 0,
          delta: { role: 'assistant', content: 'word '.repeat(burst) },
          finish_reason: null,
        },
      ],
    });
    await world().sleep(world().random.between(0, 30));
  }
  send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  send({ choices: [], usage });
  response.end('data: [DONE]\n\n');
}
