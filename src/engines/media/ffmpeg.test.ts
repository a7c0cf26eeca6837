import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { systemClock } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import {
  checkArguments,
  measureArguments,
  probeArguments,
  readProbe,
  signalArguments,
  soundArguments,
  writeArguments,
} from './ffmpeg.ts';
import { Media } from './media.ts';

const input = { path: '/data/in', format: 'mov' } as const;
const common = { kind: 'write', output: '/data/out', maxSeconds: 5 } as const;
const rotated = { input, rotation: 90, filter: 'scale=64:36' } as const;
const scale = writeArguments({ ...common, video: rotated, audio: input }, 'libx264');

test('every ffmpeg input is restricted to the file protocol and one format, and is not parsed as an option', () => {
  const otherAudio = { path: '/data/a.wav', format: 'wav' } as const;
  const all = [
    probeArguments(input),
    measureArguments(input),
    checkArguments(input, 'video'),
    checkArguments(input, 'audio'),
    soundArguments(input),
    signalArguments(input, 'video'),
    signalArguments(input, 'audio'),
    writeArguments({ ...common, video: null, audio: input }, 'libx264'),
    writeArguments({ ...common, video: rotated, audio: otherAudio }, 'mpeg4'),
    scale,
  ];
  for (const args of all) {
    for (const [index, arg] of args.entries()) {
      if (arg !== '-i') continue;
      assert.match(args[index + 1]!, /^file:\//);
      assert.deepEqual(args.slice(index - 6, index - 5).concat(args[index - 5]!), [
        '-protocol_whitelist',
        'file',
      ]);
      assert.equal(args[index - 4], '-format_whitelist');
      assert.equal(args[index - 2], '-f');
    }
  }
  assert.ok(scale.includes('-max_pixels'));
  // ffmpeg rotates frames by itself; a second rotation would be wrong.
  assert.ok(!scale.join(' ').includes('transpose'));
});

test('extracted sound is bounded in bytes too, because timestamps can be too close', () => {
  const args = writeArguments({ ...common, video: null, audio: input }, 'libx264');
  assert.match(args.join(' '), / -t 5 -fs 160000 -f s16le /);
});

test('`readProbe` returns the longer duration, the displayed size, and ignores cover images', () => {
  const json = JSON.stringify({
    format: { duration: '4.0' },
    streams: [
      {
        codec_type: 'video',
        codec_name: 'mjpeg',
        width: 9,
        height: 9,
        disposition: { attached_pic: 1 },
      },
      {
        codec_type: 'video',
        codec_name: 'h264',
        width: 1920,
        height: 1080,
        avg_frame_rate: '30000/1001',
        side_data_list: [{ rotation: -90 }],
      },
      { codec_type: 'audio', codec_name: 'aac', sample_rate: '48000', channels: 2 },
    ],
  });
  const none = { seconds: 0, frames: 0 };
  const facts = readProbe(json, { seconds: 9.5, frames: 285 });
  assert.equal(facts.durationSeconds, 9.5);
  assert.deepEqual(
    [facts.video?.width, facts.video?.height, facts.video?.rotation],
    [1080, 1920, 90],
  );
  assert.ok(Math.abs((facts.video?.framesPerSecond ?? 0) - 29.97) < 0.001);
  // The video has twice the frames of its header; the true rate is billed.
  const fast = readProbe(json, { seconds: 10, frames: 600 });
  assert.equal(fast.video?.framesPerSecond, 60);
  assert.equal(facts.hasAudio, true);
  assert.equal(readProbe('{"format":{"duration":"N/A"}}', none).durationSeconds, 0);
  assert.throws(() => readProbe('not json', none));
});

describe('installed programs', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ffmpeg-'));
  after(() => rmSync(folder, { recursive: true }));
  const program = (name: string, script: string): void => {
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, name), 0o755);
  };
  const call = { signal: new AbortController().signal };
  // Fake programs with the output of the real ones: this tests how they are run.
  program(
    'ffmpeg',
    `case "$*" in
  *-encoders*) echo " V....D libx264 H.264" ;;
  *broken*) echo "Invalid data" >&2; exit 1 ;;
  *slow*) while :; do :; done ;;
  *s16le*) echo "$*" > "${folder}/args"; env > "${folder}/env"; for a; do o="$a"; done; printf '%032000d' 0 > "\${o#file:}"; echo out_time_us=1000000 ;;
  *scratched.mp4*0:V:0*) echo "Invalid data" >&2; exit 1 ;;
  *signalstats*) echo frame=1 ;;
  *astats*) echo out_time_us=N/A ;;
  *film.mp4*0:V:0*) echo "$*" > "${folder}/args"; echo frame=48; echo out_time_us=2000000 ;;
  *) echo out_time_us=3000000 ;;
esac`,
  );
  program(
    'ffprobe',
    `case "$*" in
  *.mp4*) echo '{"format":{"duration":"2"},"streams":[{"codec_type":"video","codec_name":"h264","width":640,"height":360},{"codec_type":"audio","codec_name":"aac"}]}' ;;
  *) echo '{"format":{"duration":"2"},"streams":[{"codec_type":"audio","codec_name":"aac"}]}' ;;
esac`,
  );
  const wave = (name: string): string => {
    writeFileSync(
      join(folder, name),
      Buffer.concat([Buffer.from('RIFF\0\0\0\0WAVEfmt '), Buffer.alloc(99)]),
    );
    return join(folder, name);
  };
  const open = (limits = {}): Promise<Media> =>
    Media.open({ searchPath: `/nowhere:${folder}`, limits, log: silentLog, clock: systemClock() });

  test('they are found on the search path and run without an environment', async () => {
    const media = await open();
    assert.equal(media.tool, 'ffmpeg');
    assert.deepEqual((await media.probe(wave('ok.wav'), call)).durationSeconds, 3);
    const fractions: number[] = [];
    const { durationMs } = await media.extractAudio(wave('ok.wav'), join(folder, 'out.pcm'), 2, {
      ...call,
      onProgress: (fraction) => fractions.push(fraction),
    });
    assert.deepEqual([durationMs, fractions], [1000, [0.5]]);
    assert.match(readFileSync(join(folder, 'args'), 'utf8'), /-f wav -i file:.*ok\.wav/);
    assert.doesNotMatch(readFileSync(join(folder, 'env'), 'utf8'), /HOME|USER|TOKEN|NODE/);
  });

  test('a failing or hanging program is rejected with 400', async () => {
    const media = await open();
    await assert.rejects(media.probe(wave('broken.wav'), call), {
      code: 'INVALID_VIDEO_FORMAT',
      message: /cannot be decoded/,
    });
    const hasty = await open({ readTimeoutMs: 300 });
    await assert.rejects(hasty.probe(wave('slow.wav'), call), {
      code: 'INVALID_VIDEO_FORMAT',
      message: /too much time/,
    });
  });

  test('a video is decoded strictly; its decoded duration is returned, and whether it is black or silent', async () => {
    const video = (name: string): string => {
      const box = Buffer.alloc(32);
      box.writeUInt32BE(32, 0);
      box.write('ftypisom', 4, 'latin1');
      writeFileSync(join(folder, name), box);
      return join(folder, name);
    };
    const media = await open();
    assert.deepEqual(await media.checkVideo(video('film.mp4'), 2, call), {
      type: 'video/mp4',
      claimedSeconds: 3,
      seconds: 2,
      frames: 48,
      width: 640,
      height: 360,
      hasSound: true,
      isBlack: false,
      isSilent: true,
    });
    assert.match(readFileSync(join(folder, 'args'), 'utf8'), /-xerror -err_detect:v explode/);
    await assert.rejects(media.checkVideo(video('scratched.mp4'), 2, call), {
      code: 'INVALID_VIDEO_FORMAT',
    });
  });

  test('a configured program that does not exist is an error at the start', async () => {
    const options = { searchPath: '', log: silentLog, clock: systemClock() };
    await assert.rejects(Media.open({ ...options, ffmpeg: '/nowhere/ffmpeg' }), /media\.ffmpeg/);
  });
});
