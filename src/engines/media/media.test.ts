import assert from 'node:assert/strict';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { crc32, deflateSync } from 'node:zlib';
import type { AVPixelFormat } from 'node-av/constants';
import { sharp } from '../../../test/support/sharp.ts';
import { telephoneHeader } from '../../../test/media/clips.ts';
import { systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { silentLog } from '../../core/log.ts';
import { useEnginePackages } from '../../../test/support/engine-packages.ts';
import { type FocusPoint, ToolFailure } from './media-task.ts';
import { Media, type MediaLimits, type StillRequest, toolFault } from './media.ts';
import { wavHeader } from './wav.ts';
import { portraitSvg } from '../../../test/support/engine-fixtures.ts';

useEnginePackages('media');
const { Decoder, Demuxer } = await import('node-av/api');
const { AVCOL_RANGE_JPEG } = await import('node-av/constants');
const { avGetPixFmtName } = await import('node-av/lib');

const folder = mkdtempSync(join(tmpdir(), 'media-'));
const at = (name: string): string => join(folder, name);
const call = { signal: new AbortController().signal };

async function openMedia(limits: Partial<MediaLimits> = {}, searchPath = ''): Promise<Media> {
  return await Media.open({ searchPath, limits, log: silentLog, clock: systemClock() });
}

/** A 440 Hz tone as a WAV file. */
function tone(seconds: number): Buffer {
  const samples = Buffer.alloc(seconds * 32_000);
  for (let i = 0; i < samples.length / 2; i += 1) {
    samples.writeInt16LE(Math.round(12_000 * Math.sin((i * 440 * 2 * Math.PI) / 16_000)), i * 2);
  }
  return Buffer.concat([wavHeader(samples.length), samples]);
}

const media = await openMedia();

/** Pixel format of a video, and the two colour values in the centre of its first frame. */
async function firstFrame(path: string) {
  await using input = await Demuxer.open(path);
  const stream = input.video()!;
  const decoder = await Decoder.create(stream);
  for await (const frame of decoder.frames(input.packets(stream.index))) {
    if (frame === null) break;
    const [, blue, red] = frame.data!;
    const middle = 16 * 32 + 16;
    const isFullRange = frame.colorRange === AVCOL_RANGE_JPEG;
    return {
      format: avGetPixFmtName(frame.format as AVPixelFormat),
      isFullRange,
      blue: blue![middle]!,
      red: red![middle]!,
    };
  }
  return assert.fail('no frame');
}

before(async () => {
  writeFileSync(at('portrait.png'), await sharp(Buffer.from(portraitSvg())).png().toBuffer());
  writeFileSync(at('tone.wav'), tone(2));
  await media.stillToVideo(
    {
      imagePath: at('portrait.png'),
      audioPath: at('tone.wav'),
      outputPath: at('clip.mp4'),
      width: 160,
      height: 120,
      seconds: 2,
      framesPerSecond: 12,
      move: 'in',
    },
    call,
  );
});
after(() => rmSync(folder, { recursive: true }));

describe('video and audio tasks', () => {
  test('`stillToVideo` writes an MP4 with the requested size, duration and frame rate', async () => {
    const facts = await media.probe(at('clip.mp4'), call);
    assert.deepEqual(
      [facts.video?.width, facts.video?.height, facts.video?.rotation],
      [160, 120, 0],
    );
    assert.ok(Math.abs((facts.video?.framesPerSecond ?? 0) - 12) < 0.01);
    assert.ok(Math.abs(facts.durationSeconds - 2) < 0.15, `${facts.durationSeconds} s`);
    assert.equal(facts.hasAudio, true);
  });

  test('`stillToVideo` keeps the requested part of a tall image and writes limited-range colours', async () => {
    const bands = ['#ff0000', '#00ff00', '#0000ff'].map((fill, at) => {
      return `<rect y="${at * 200}" width="200" height="200" fill="${fill}"/>`;
    });
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="600">${bands.join('')}</svg>`;
    // A JPEG has full-range colours, which players do not expect in a video.
    writeFileSync(at('tall.jpg'), await sharp(Buffer.from(svg)).jpeg().toBuffer());
    const colours: [FocusPoint | undefined, number, number][] = [
      [{ x: 0.5, y: 0 }, 90, 240], // red
      [undefined, 54, 34], // green
      [{ x: 0.5, y: 1 }, 240, 110], // blue
    ];
    for (const [focus, blue, red] of colours) {
      const size = { width: 64, height: 64, seconds: 0.5, framesPerSecond: 8 };
      const outputPath = at('kept.mp4');
      const imagePath = at('tall.jpg');
      const request = { imagePath, audioPath: undefined, outputPath, move: 'in', focus, ...size };
      await media.stillToVideo(request as StillRequest, call);
      const frame = await firstFrame(outputPath);
      assert.deepEqual([frame.format, frame.isFullRange], ['yuv420p', false]);
      assert.ok(Math.abs(frame.blue - blue) < 12, `blue ${frame.blue}`);
      assert.ok(Math.abs(frame.red - red) < 12, `red ${frame.red}`);
    }
  });

  test('`stillToVideo` supports every camera move without sound', async () => {
    for (const move of ['out', 'left', 'right', 'up', 'down'] as const) {
      const outputPath = at(`${move}.mp4`);
      const size = { width: 64, height: 64, seconds: 0.5, framesPerSecond: 8 };
      await media.stillToVideo(
        { imagePath: at('portrait.png'), audioPath: undefined, outputPath, move, ...size },
        call,
      );
      const facts = await media.probe(outputPath, call);
      assert.deepEqual([facts.video?.width, facts.hasAudio], [64, false]);
    }
  });

  test('`upscale` doubles width and height, keeps the sound, and reports progress', async () => {
    const facts = await media.probe(at('clip.mp4'), call);
    const fractions: number[] = [];
    const onProgress = (fraction: number): void => void fractions.push(fraction);
    await media.upscale(
      { path: at('clip.mp4'), outputPath: at('large.mp4'), factor: 2, facts },
      { ...call, onProgress },
    );
    const large = await media.probe(at('large.mp4'), call);
    assert.deepEqual([large.video?.width, large.video?.height, large.hasAudio], [320, 240, true]);
    assert.ok(Math.abs(large.durationSeconds - 2) < 0.2);
    assert.ok(fractions.length > 0 && fractions.at(-1)! > 0.8, String(fractions));
  });

  test('`extractAudio` writes 16 kHz samples up to the maximum duration', async () => {
    const whole = await media.extractAudio(at('clip.mp4'), at('sound.pcm'), 600, call);
    assert.ok(Math.abs(whole.durationMs - 2000) < 100, `${whole.durationMs} ms`);
    const pcm = readFileSync(at('sound.pcm'));
    let crossings = 0;
    for (let i = 8002; i < 40_000; i += 2) {
      if (pcm.readInt16LE(i - 2) < 0 !== pcm.readInt16LE(i) < 0) crossings += 1;
    }
    assert.ok(Math.abs(crossings - 880) < 20, `${crossings} zero crossings in a second`);
    const cut = await media.extractAudio(at('clip.mp4'), at('cut.pcm'), 0.5, call);
    assert.equal(cut.durationMs, 500);
  });

  test('a WAV of speech audio is copied without a decoder', async () => {
    const run = (): Promise<never> => Promise.reject(new Error('A process was started'));
    const idle = await Media.open({ searchPath: '', run, log: silentLog, clock: systemClock() });
    const [wav, pcm] = [at('tone.wav'), at('samples.pcm')];
    assert.deepEqual(await idle.probe(wav, call), {
      durationSeconds: 2,
      video: null,
      hasAudio: true,
    });
    for (const [seconds, durationMs] of [
      [600, 2_000],
      [0.5, 500],
    ] as const) {
      assert.deepEqual(await idle.extractAudio(wav, pcm, seconds, call), { durationMs });
      assert.ok(readFileSync(pcm).equals(tone(2).subarray(44, 44 + durationMs * 32)));
    }
    // Another sample rate, an extra byte, a header with a wrong length, an empty file.
    const others = [
      Buffer.concat([telephoneHeader(32_000), Buffer.alloc(32_000)]),
      Buffer.concat([wavHeader(32_001), Buffer.alloc(32_001)]),
      Buffer.concat([wavHeader(32_000), Buffer.alloc(32_002)]),
      wavHeader(0),
    ];
    for (const bytes of others) {
      writeFileSync(at('other.wav'), bytes);
      await assert.rejects(idle.probe(at('other.wav'), call), /process was started/);
    }
    const aborted = { signal: AbortSignal.abort() };
    await assert.rejects(idle.extractAudio(wav, pcm, 600, aborted), { name: 'AbortError' });
  });

  test('`extractAudio` resamples sound of another rate completely', async () => {
    const seconds = 100;
    const samples = Buffer.alloc(seconds * 16_000);
    writeFileSync(at('telephone.wav'), Buffer.concat([telephoneHeader(samples.length), samples]));
    const facts = await media.probe(at('telephone.wav'), call);
    assert.deepEqual(facts, { durationSeconds: seconds, video: null, hasAudio: true });
    const reports: number[] = [];
    const onProgress = (fraction: number): void => void reports.push(fraction);
    const observed = { ...call, onProgress };
    const { durationMs } = await media.extractAudio(
      at('telephone.wav'),
      at('t.pcm'),
      600,
      observed,
    );
    assert.equal(durationMs, seconds * 1_000);
    // One report per ten seconds, not per frame.
    assert.ok(reports.length >= 5 && reports.length <= 10, `${reports.length} reports`);
  });
});

describe('`checkVideo`', () => {
  test('it decodes every frame and returns the properties of the video', async () => {
    assert.deepEqual(await media.checkVideo(at('clip.mp4'), 2, call), {
      type: 'video/mp4',
      claimedSeconds: 2,
      seconds: 2,
      frames: 24,
      width: 160,
      height: 120,
      hasSound: true,
      isBlack: false,
      isSilent: false,
    });
  });

  test('a video that is truncated, damaged, or without frames is rejected', async () => {
    const whole = readFileSync(at('clip.mp4'));
    const refused = async (bytes: Buffer, what: string): Promise<void> => {
      writeFileSync(at('cut.mp4'), bytes);
      await assert.rejects(
        media.checkVideo(at('cut.mp4'), 2, call),
        (error: unknown) => error instanceof Fault && error.code === 'INVALID_VIDEO_FORMAT',
        what,
      );
    };
    for (const share of [0, 0.001, 0.01, 0.3, 0.7, 0.99]) {
      await refused(whole.subarray(0, Math.floor(whole.length * share)), `cut at ${share}`);
    }
    await refused(whole.subarray(0, -1), 'without its last byte');
    await refused(Buffer.concat([whole, Buffer.alloc(9, 'x')]), 'with trailing data');
    const scratched = Buffer.from(whole);
    scratched.fill(0xff, Math.floor(whole.length * 0.6), Math.floor(whole.length * 0.8));
    await refused(scratched, 'scratched');
    await refused(readFileSync(at('tone.wav')), 'sound');
    await refused(readFileSync(at('portrait.png')), 'an image');
  });
});

/** Hostile files: name, content, and the expected error message. */
const HOSTILE: [string, () => Buffer | string, RegExp][] = [
  [
    'an HLS playlist of a local file',
    () => '#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n/etc/passwd\n#EXT-X-ENDLIST\n',
    /playlist/,
  ],
  ['a concat script', () => "ffconcat version 1.0\nfile '/etc/passwd'\n", /playlist/],
  [
    'a DASH description',
    () => '<?xml version="1.0"?><MPD><BaseURL>file:///etc/passwd</BaseURL></MPD>',
    /playlist/,
  ],
  [
    'a session description',
    () => 'v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n',
    /playlist/,
  ],
  ['a subtitle file', () => '1\n00:00:00,000 --> 00:00:02,000\nhello\n', /not MP4/],
  ['an empty file', () => '', /not MP4/],
  ['an image instead of a video', () => readFileSync(at('portrait.png')), /not MP4/],
  [
    'an MP4 header with invalid data',
    () =>
      Buffer.concat([
        Buffer.from([0, 0, 0, 24]),
        Buffer.from('ftypisom'),
        Buffer.alloc(9000, 0xa5),
      ]),
    /cannot be decoded/,
  ],
  [
    'a Matroska header with invalid data',
    () => Buffer.concat([Buffer.from([0x1a, 0x45, 0xdf, 0xa3]), Buffer.alloc(9000, 0x42)]),
    /cannot be decoded/,
  ],
  [
    'an Ogg header with invalid data',
    () => Buffer.concat([Buffer.from('OggS'), Buffer.alloc(9000, 1)]),
    /cannot be decoded/,
  ],
  [
    'an MP4 without an index',
    () => {
      const clip = Buffer.from(readFileSync(at('clip.mp4')));
      clip.write('zzzz', clip.indexOf('moov'), 'latin1');
      return clip;
    },
    /cannot be decoded/,
  ],
];

/** Silence of 37 hours in a sparse file. */
function writeLongSound(path: string): void {
  writeFileSync(path, telephoneHeader(0x7fff_0000));
  truncateSync(path, 0x7fff_0000);
}

describe('hostile media', () => {
  for (const [name, make, words] of HOSTILE) {
    test(`${name} is rejected with 400`, async () => {
      writeFileSync(at('hostile'), make());
      const refused = (error: unknown): boolean =>
        error instanceof Fault && error.status === 400 && words.test(error.message);
      await assert.rejects(media.probe(at('hostile'), call), refused);
      await assert.rejects(media.extractAudio(at('hostile'), at('out.pcm'), 60, call), refused);
    });
  }

  test('a playlist after an MP4 header is not interpreted', async () => {
    const text = '\n#EXTM3U\n#EXTINF:9,\n/etc/passwd\n';
    writeFileSync(
      at('mixed'),
      Buffer.concat([Buffer.from([0, 0, 0, 16]), Buffer.from(`ftypisom${text}`)]),
    );
    await assert.rejects(media.probe(at('mixed'), call), { code: 'INVALID_VIDEO_FORMAT' });
  });

  test('a sound of many hours is cut at the maximum duration', async () => {
    writeLongSound(at('endless.wav'));
    const { durationMs } = await media.extractAudio(at('endless.wav'), at('endless.pcm'), 30, call);
    assert.equal(durationMs, 30_000);
    assert.equal(statSync(at('endless.pcm')).size, 30 * 32_000);
  });

  test('a decompression bomb is rejected', async () => {
    const chunk = (type: string, data: Buffer): Buffer => {
      const body = Buffer.concat([Buffer.from(type), data]);
      const frame = Buffer.alloc(8);
      frame.writeUInt32BE(data.length, 0);
      frame.writeUInt32BE(crc32(body), 4);
      return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
    };
    // 20,000 x 20,000 pixels of one bit: 50 MB of zeros compressed to 50 KB.
    const header = Buffer.from([0, 0, 0x4e, 0x20, 0, 0, 0x4e, 0x20, 1, 0, 0, 0, 0]);
    const bomb = Buffer.concat([
      Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
      chunk('IHDR', header),
      chunk('IDAT', deflateSync(Buffer.alloc(20_000 * 2_501))),
      chunk('IEND', Buffer.alloc(0)),
    ]);
    writeFileSync(at('bomb.png'), bomb);
    const outputPath = at('bomb.mp4');
    const size = { width: 64, height: 64, seconds: 1, framesPerSecond: 4, move: 'in' } as const;
    await assert.rejects(
      media.stillToVideo(
        { imagePath: at('bomb.png'), audioPath: undefined, outputPath, ...size },
        call,
      ),
      { code: 'INVALID_VIDEO_FORMAT' },
    );
  });

  test('a task that exceeds its time or memory is rejected with the reason', async () => {
    // Runs for many seconds, so that memory is sampled.
    writeLongSound(at('hours.wav'));
    for (const limits of [{ readTimeoutMs: 20 }, { memoryBytes: 20_000_000 }]) {
      const bounded = await openMedia(limits);
      await assert.rejects(bounded.extractAudio(at('hours.wav'), at('hours.pcm'), 60_000, call), {
        code: 'INVALID_VIDEO_FORMAT',
        message: /too much time or memory/,
      });
    }
  });

  test('an abort ends the process', async () => {
    const aborter = new AbortController();
    writeLongSound(at('long.wav'));
    const work = media.extractAudio(at('long.wav'), at('long.pcm'), 60_000, {
      signal: aborter.signal,
      onProgress: () => aborter.abort(),
    });
    await assert.rejects(work, { name: 'AbortError' });
  });

  test('a missing tool is reported with the program to install', async () => {
    const fault = toolFault(new ToolFailure('missing', ''), 'file');
    assert.equal(fault.status, 503);
    assert.match(fault.message, /install it|node-av/);
    const missing = openMedia({}, '/nowhere');
    assert.equal((await missing).tool, 'node-av');
    assert.ok(existsSync(folder));
  });
});
