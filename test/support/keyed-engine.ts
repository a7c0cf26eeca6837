/** A model server that requires a key and has a list of models, with a price list beside it. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { endServer, listen } from './loopback.ts';

export const ENGINE_KEY = 'sk-key-of-the-engine';

const PRICES = {
  'acme/small': {
    litellm_provider: 'acme',
    mode: 'chat',
    max_input_tokens: 32_768,
    max_output_tokens: 4_096,
    input_cost_per_token: 1e-7,
    output_cost_per_token: 4e-7,
  },
};
const COMPLETION = {
  id: 'c1',
  object: 'chat.completion',
  created: 1,
  choices: [
    { index: 0, message: { role: 'assistant', content: 'Hello there.' }, finish_reason: 'stop' },
  ],
  usage: { prompt_tokens: 10, completion_tokens: 3, total_tokens: 13 },
};

export interface KeyedEngine {
  /** Without `/v1`. */
  readonly origin: string;
  close(): void;
}

export type EngineDialect = 'openai' | 'anthropic' | 'open';

/** `open` lists its models without a key. */
export async function startKeyedEngine(dialect: EngineDialect = 'openai'): Promise<KeyedEngine> {
  const server = createServer((request, response) => {
    request.resume().once('end', () => respond(dialect, request, response));
  });
  return {
    origin: `http://127.0.0.1:${await listen(server)}`,
    close: () => void endServer(server),
  };
}

function respond(dialect: EngineDialect, request: IncomingMessage, response: ServerResponse): void {
  const { url = '', method, headers } = request;
  const send = (status: number, body: unknown): void => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  };
  if (url === '/prices.json') return send(200, PRICES);
  const isList = method === 'GET' && url.startsWith('/v1/models');
  const given =
    dialect === 'anthropic' ? headers['x-api-key'] : headers.authorization?.replace('Bearer ', '');
  const isOpen = dialect === 'open' && isList;
  if (given !== ENGINE_KEY && !isOpen)
    return send(401, { error: { message: `No ${String(given)}` } });
  if (isList) {
    const ids = ['acme/small', 'acme/unlisted'];
    return send(200, { object: 'list', data: ids.map((id) => ({ id, object: 'model' })) });
  }
  if (url === '/v1/chat/completions') return send(200, { ...COMPLETION, model: 'acme/small' });
  return send(404, { error: { message: 'No such path' } });
}
