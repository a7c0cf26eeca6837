/** The speaker with a toy voice: which sentences it computes for a caller that disconnects. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { JobQueue, type Turn } from '../../src/core/job-queue.ts';
import { fetchedPackages } from '../../src/engines/embedded/packages.ts';
import { openMedia, toyVoice } from '../../test/media/clips.ts';
import { Speaker } from './speaker.ts';

const folder = mkdtempSync(join(tmpdir(), 'speaker-'));
after(() => rmSync(folder, { recursive: true }));

/** A queue that counts the turns, of a sentence each. */
class CountingQueue extends JobQueue {
  turns = 0;

  override turnsOf(caller: string, signal: AbortSignal): Turn {
    const turn = super.turnsOf(caller, signal);
    return async (work) =>
      await turn(() => {
        this.turns += 1;
        return work();
      });
  }
}

for (const format of ['pcm', 'mp3'] as const) {
  test(`the voice stops within a sentence after a caller of ${format} has disconnected`, async () => {
    const queue = new CountingQueue({ running: 1, waiting: 4 });
    const model = await toyVoice(folder);
    const speaker = new Speaker({
      media: await openMedia(),
      threads: 1,
      runtime: fetchedPackages('cutout', undefined),
      queue,
      requestVoice: () => assert.fail('the voice is there'),
    });
    speaker.use({ model, config: `${model}.json` });
    const ended = Promise.withResolvers<unknown>();
    const server = createServer((raw, response) => {
      const aborter = new AbortController();
      response.once('close', () => aborter.abort());
      const { signal } = aborter;
      speaker
        .speak({ raw, id: '', caller: 'a', signal }, response)
        .then(ended.resolve, ended.reject);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const call = request({ port, method: 'POST' });
      const input = 'This is one of many sentences. '.repeat(300);
      call.on('error', () => undefined).end(JSON.stringify({ input, response_format: format }));
      const [response] = (await once(call, 'response')) as [NodeJS.ReadableStream];
      await once(response, 'data');
      const before = queue.turns;
      call.destroy();
      await assert.rejects(ended.promise);
      assert.ok(before < 290 && queue.turns <= before + 1, `${before}, then ${queue.turns} of 300`);
    } finally {
      server.close();
    }
  });
}
