/** A fast OpenAI-compatible upstream: a fixed response of 1.5 KB, or a stream of chunks. */
import { createServer } from 'node:http';
import { announce } from './announce.ts';
import { ANSWER } from './fixed-response.ts';

const CHUNKS = Number(process.env['WORDS'] ?? '64');
const chunk = (delta: unknown, finish: string | null): string =>
  `data: ${JSON.stringify({
    id: 'chatcmpl-upstream',
    object: 'chat.completion.chunk',
    created: 1_750_000_000,
    model: 'upstream-model',
    choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`;
const pieces = [
  chunk({ role: 'assistant', content: '' }, null),
  ...Array.from({ length: CHUNKS }, (_, index) => chunk({ content: ` word${index}` }, null)),
  chunk({}, 'stop'),
].map((text) => Buffer.from(text));
const tail = Buffer.from(
  `data: ${JSON.stringify({ id: 'chatcmpl-upstream', object: 'chat.completion.chunk', created: 1_750_000_000, model: 'upstream-model', choices: [], usage: { prompt_tokens: 200, completion_tokens: 65, total_tokens: 265 } })}\n\ndata: [DONE]\n\n`,
);

const server = createServer((request, response) => {
  let streams = false;
  request.on('data', (data: Buffer) => {
    if (data.includes('"stream":true')) streams = true;
  });
  request.on('end', () => {
    if (!streams) {
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': ANSWER.length,
      });
      response.end(ANSWER);
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const paceMs = Number(process.env['PACE_MS'] ?? '0');
    let at = 0;
    if (paceMs === 0) {
      // Writes one chunk per turn of the loop, because writes of one turn arrive as one chunk.
      const next = (): void => {
        const piece = pieces[at];
        at += 1;
        if (piece === undefined) response.end(tail);
        else {
          response.write(piece);
          setImmediate(next);
        }
      };
      next();
      return;
    }
    // Writes the first chunk immediately, so that a waiting stream has started.
    response.write(pieces[at]);
    at += 1;
    const timer = setInterval(() => {
      const piece = pieces[at];
      at += 1;
      if (piece !== undefined) response.write(piece);
      else {
        clearInterval(timer);
        response.end(tail);
      }
    }, paceMs);
    response.on('close', () => clearInterval(timer));
  });
});
announce(server);
