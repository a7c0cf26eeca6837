/** An upstream of three protocols: a fixed response of `WORDS` words, or a stream of them. */
import { createServer } from 'node:http';
import { announce } from './announce.ts';
import { engineResponse, ENGINE_USAGE, message } from '../test/support/responses-engine.ts';

const COUNT = Number(process.env['WORDS'] ?? '64');
const words = Array.from({ length: COUNT }, (_, index) => ` word${index}`);
const text = words.join('');
const head = { id: 'chatcmpl-upstream', created: 1_750_000_000, model: 'upstream-model' };
const usage = { prompt_tokens: 200, completion_tokens: 65, total_tokens: 265 };
const chatChunk = (choices: readonly unknown[], more: object = {}): string =>
  `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices, ...more })}\n\n`;
const chatDelta = (delta: object, finish_reason: string | null = null): string =>
  chatChunk([{ index: 0, delta, finish_reason }]);
const named = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;

const claudeMessage = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'upstream-model',
  content: [{ type: 'text', text }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: {
    input_tokens: 200,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
    output_tokens: 65,
  },
};
const item = message('msg_1', text);
const started = { ...engineResponse({ output: [] }), status: 'in_progress', usage: null };
const response = engineResponse({ output: [item], usage: ENGINE_USAGE });
const place = { item_id: 'msg_1', output_index: 0, content_index: 0 };
const emptyPart = { type: 'output_text', text: '', annotations: [], logprobs: [] };

/** By the end of the path. */
const RESPONSES: Readonly<Record<string, { whole: object; events: readonly string[] }>> = {
  completions: {
    whole: {
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }],
      usage,
    },
    events: [
      chatDelta({ role: 'assistant', content: '' }),
      ...words.map((content) => chatDelta({ content })),
      chatDelta({}, 'stop'),
      `${chatChunk([], { usage })}data: [DONE]\n\n`,
    ],
  },
  messages: {
    whole: claudeMessage,
    events: [
      named('message_start', { message: { ...claudeMessage, content: [], stop_reason: null } }) +
        named('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
      ...words.map((word) =>
        named('content_block_delta', { index: 0, delta: { type: 'text_delta', text: word } }),
      ),
      named('content_block_stop', { index: 0 }),
      named('message_delta', {
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { output_tokens: 65 },
      }) + named('message_stop', {}),
    ],
  },
  responses: {
    whole: response,
    events: [
      named('response.created', { response: started }) +
        named('response.output_item.added', { output_index: 0, item: { ...item, content: [] } }) +
        named('response.content_part.added', { ...place, part: emptyPart }),
      ...words.map((delta) =>
        named('response.output_text.delta', { ...place, delta, logprobs: [] }),
      ),
      named('response.output_text.done', { ...place, text, logprobs: [] }) +
        named('response.content_part.done', { ...place, part: { ...emptyPart, text } }) +
        named('response.output_item.done', { output_index: 0, item }),
      named('response.completed', { response }),
    ],
  },
};

const server = createServer((request, reply) => {
  const made = RESPONSES[request.url?.split('/').at(-1) ?? ''];
  let isStream = false;
  request.on('data', (data: Buffer) => {
    if (data.includes('"stream":true')) isStream = true;
  });
  request.on('end', () => {
    if (made === undefined || !isStream) {
      reply.writeHead(200, { 'content-type': 'application/json' });
      reply.end(JSON.stringify(made?.whole ?? { object: 'list', data: [] }));
      return;
    }
    reply.writeHead(200, { 'content-type': 'text/event-stream' });
    const pieces = made.events.values();
    // Writes of one turn of the loop arrive as one chunk.
    const next = (): void => {
      const { value, done } = pieces.next();
      if (done === true) return void reply.end();
      reply.write(value);
      setImmediate(next);
    };
    next();
  });
});
announce(server);
