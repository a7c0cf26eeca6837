/** The list of models through the unmodified client of Anthropic's API. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { startTestApp } from '../app/test-app.ts';

test('`GET /models` has the Anthropic format for Anthropic clients', async () => {
  const more = 'type: text, price: { input: 1, output: 2 }, context: 4096';
  const farebox = await startTestApp({
    yaml: `
engines: { one: { url: "http://127.0.0.1:9" } }
models:
  - { id: mine, ${more}, replicas: [{ engine: one }] }
  - { id: theirs, ${more}, replicas: [{ engine: one }] }
  - { id: Vendor/Named, ${more}, replicas: [{ engine: one }] }
  - { id: vectors, type: embedding, embedding: { dimensions: 8 }, price: { input: 1 }, replicas: [{ engine: one }] }
`,
  });
  try {
    const client = new Anthropic({ baseURL: farebox.url.replace(/\/v1$/, ''), apiKey: 'none' });
    const listed: string[] = [];
    for await (const { id } of client.models.list({ limit: 2 })) listed.push(id);
    const ids = ['mine', 'theirs', 'Vendor/Named'];
    assert.deepEqual(listed, [...ids, ...ids.map((id) => `claude-${id}`)]);
    const model = await client.models.retrieve('claude-mine');
    assert.equal(model.id, 'mine');
    assert.equal(model.max_input_tokens, 4_096);
    assert.equal(model.lifecycle, 'active');
    const encoded = await client.models.retrieve('Vendor/Named');
    assert.equal(encoded.id, 'Vendor/Named');
    await assert.rejects(client.models.retrieve('mien'), Anthropic.NotFoundError);
    await assert.rejects(client.models.list({ limit: 1_001 }), Anthropic.BadRequestError);
    await assert.rejects(client.models.list({ after_id: 'none' }), Anthropic.BadRequestError);
    const before = await client.models.list({ before_id: 'claude-mine', limit: 2 });
    assert.deepEqual(
      before.data.map(({ id }) => id),
      ['theirs', 'Vendor/Named'],
    );
    assert.ok(before.has_more);
  } finally {
    await farebox.stop();
  }
});
