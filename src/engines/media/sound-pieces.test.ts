/** Sound files in the formats of engines, complete and cut off, decoded by the media engine. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeSound, openMedia, toneWav } from '../../../test/media/clips.ts';

const folder = mkdtempSync(join(tmpdir(), 'farebox-sounds-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const call = { signal: new AbortController().signal };

for (const kind of ['mp3', 'opus', 'aac', 'flac', 'wav'] as const) {
  test(`a complete ${kind} has its duration, and one that is cut off is rejected`, async () => {
    const media = await openMedia();
    const whole = await makeSound(folder, 'ab ba ab', kind);
    const path = join(folder, `given.${kind}`);
    const seconds = async (bytes: Buffer): Promise<number> => {
      writeFileSync(path, bytes);
      const sound = await media.checkSound(path, call);
      assert.equal(sound.isSilent, false);
      return sound.seconds;
    };
    assert.ok(Math.abs((await seconds(whole)) - 5) < 0.2);
    // FLAC frames have no length, so at least a second must be missing.
    const shares = kind === 'flac' ? [0.5] : [0.5, 0.9, 1 - 5 / whole.length];
    for (const share of shares) {
      const cut = whole.subarray(0, Math.floor(whole.length * share));
      await assert.rejects(seconds(cut), { code: 'INVALID_VIDEO_FORMAT' }, `${share} of it`);
    }
    await assert.rejects(seconds(whole.subarray(0, 70)), { code: 'INVALID_VIDEO_FORMAT' });
    // Engines that generate speech sentence by sentence concatenate such files.
    if (kind === 'mp3' || kind === 'aac' || kind === 'opus') {
      assert.ok(Math.abs((await seconds(Buffer.concat([whole, whole]))) - 10) < 0.3);
    }
  });
}

test('a sound without an audible sample is silent', async () => {
  const media = await openMedia();
  for (const kind of ['mp3', 'wav'] as const) {
    const path = join(folder, `silent.${kind}`);
    writeFileSync(path, await makeSound(folder, '  ', kind));
    assert.equal((await media.checkSound(path, call)).isSilent, true, kind);
  }
});

test('a WAV of unknown length is accepted', async () => {
  const media = await openMedia();
  const path = join(folder, 'streamed.wav');
  for (const length of [0xffff_ffff, 0x7fff_ffff]) {
    const wav = toneWav('ab');
    wav.writeUInt32LE(length, 4);
    wav.writeUInt32LE(length, 40);
    writeFileSync(path, wav);
    assert.ok(Math.abs((await media.checkSound(path, call)).seconds - 1) < 0.1);
  }
});
