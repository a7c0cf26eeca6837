/** A GGUF file of the operator's own is one line of the configuration. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { test } from 'node:test';
import { engineFixture } from '../support/engine-fixtures.ts';
import { until } from '../support/until.ts';
import { startFarebox } from './farebox-process.ts';

test('a model that is only a GGUF file is listed, charged and returns completions', async () => {
  const farebox = await startFarebox({
    yaml: `
listen: { port: 0 }
discovery: { enabled: false }
embedded: { demo: false, download: false, sentences: false, media: false }
models:
  - { id: mine, gguf: ${JSON.stringify(engineFixture('thinker.gguf'))} }
`,
  });
  const call = async (path: string, body?: object): Promise<Response> =>
    await fetch(`${farebox.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${farebox.secret}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  try {
    const messages = [{ role: 'user', content: 'Is it so?' }];
    const ask = () => call('/chat/completions', { model: 'mine', messages, max_tokens: 20 });
    let response = await ask();
    await until(
      async () => {
        if (response.status !== 200) response = await ask();
        return response.status === 200;
      },
      'the model answers',
      200,
    );
    // The shapes of our own responses.
    const completion = (await response.json()) as { usage: { completion_tokens: number } };
    assert.ok(completion.usage.completion_tokens > 0);
    const { data } = (await (await call('/models')).json()) as {
      data: { id: string; context_length: number; model_spec: { pricing: object } }[];
    };
    assert.deepEqual(
      data.map(({ id }) => id),
      ['mine'],
    );
    assert.ok(data[0]!.context_length > 0);
    assert.ok('input' in data[0]!.model_spec.pricing);
  } finally {
    await farebox.stop();
    rmSync(farebox.folder, { recursive: true, force: true });
  }
});
