/** Files of requests and waiting for batches with the `openai` SDK. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type OpenAI from 'openai';
import { toFile } from 'openai';

export interface ResultLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: unknown;
  } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** A request to the model `atlas`; `further` are members of its body. */
export function chatLine(id: string, further: Readonly<Record<string, unknown>> = {}) {
  const messages = [{ role: 'user', content: `Hello ${id}` }];
  return {
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'atlas', messages, max_completion_tokens: 50, ...further },
  };
}

export async function uploadLines(client: OpenAI, lines: readonly unknown[]) {
  const text = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  return await client.files.create({
    file: await toFile(Buffer.from(`${text.join('\n')}\n`), 'questions.jsonl'),
    purpose: 'batch',
  });
}

/** Uploads the requests and starts a batch. */
export async function startBatch(
  client: OpenAI,
  lines: readonly unknown[],
  endpoint: OpenAI.BatchCreateParams['endpoint'] = '/v1/chat/completions',
) {
  const { id } = await uploadLines(client, lines);
  return await client.batches.create({
    input_file_id: id,
    endpoint,
    completion_window: '24h',
  });
}

const ENDS = new Set(['completed', 'failed', 'expired', 'cancelled']);

/** Resolves to the batch after its end. */
export async function batchEnd(client: OpenAI, id: string, withinMs = 120_000) {
  const untilMs = performance.now() + withinMs;
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (ENDS.has(batch.status)) return batch;
    assert.ok(performance.now() < untilMs, `The batch is still ${JSON.stringify(batch)}`);
    await delay(20);
  }
}

/** Lines of a result file, in order. */
export async function linesOfFile(
  client: OpenAI,
  id: string | null | undefined,
): Promise<ResultLine[]> {
  assert.ok(typeof id === 'string', 'there is no such file');
  const text = await (await client.files.content(id)).text();
  assert.ok(text.endsWith('\n'));
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line) as ResultLine);
}
