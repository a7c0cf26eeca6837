/**
 * Sends many questions to a model as one batch, at the batch price, and prints the completions.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 FAREBOX_KEY=SVC_INFERENCE_KEY_… \
 *     npx node examples/batches/ask-many.ts "Why is the sky blue?" "Who wrote Faust?"
 *
 * The batch continues if you stop the program: run it with `BATCH=<id>` to read the result later.
 */
import { setTimeout as delay } from 'node:timers/promises';
import OpenAI, { toFile } from 'openai';

const POLL_MS = Number(process.env['POLL_MS'] ?? '5000');
const model = process.env['MODEL'] ?? 'default';
const client = new OpenAI({
  baseURL: process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1',
  apiKey: process.env['FAREBOX_KEY'],
});

// 1. Build a JSONL file: one request per line, each with its own `custom_id`.
const questions = process.argv.slice(2);
const lines = questions.map((content, at) =>
  JSON.stringify({
    custom_id: `question-${at + 1}`,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model, messages: [{ role: 'user', content }], max_completion_tokens: 200 },
  }),
);

async function start(): Promise<string> {
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'questions.jsonl'),
    purpose: 'batch',
  });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  console.log(`${lines.length} requests in ${id}`);
  return id;
}

// 2. Wait until the batch has ended.
const id = process.env['BATCH'] ?? (await start());
let batch = await client.batches.retrieve(id);
while (['validating', 'in_progress', 'finalizing', 'cancelling'].includes(batch.status)) {
  await delay(POLL_MS);
  batch = await client.batches.retrieve(id);
}
const { completed = 0, failed = 0 } = batch.request_counts ?? {};
console.log(`${batch.status}: ${completed} completed, ${failed} failed`);
for (const { line, message } of batch.errors?.data ?? []) console.log(`line ${line}: ${message}`);

// 3. Read the results and the errors.
for (const fileId of [batch.output_file_id, batch.error_file_id]) {
  if (!fileId) continue;
  const text = await (await client.files.content(fileId)).text();
  for (const line of text.trimEnd().split('\n')) {
    const { custom_id: name, response, error } = JSON.parse(line);
    const completion = response?.body.choices?.[0].message.content;
    console.log(`${name}: ${completion ?? JSON.stringify(error ?? response.body.error)}`);
  }
}
