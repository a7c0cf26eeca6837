/**
 * Media for tests: the drawn portrait, tones that the toy speech model transcribes as letters, and
 * clips of both, encoded by our own media engine.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sharp } from '../support/sharp.ts';
import { useEnginePackages } from '../support/engine-packages.ts';
import { Media } from '../../src/engines/media/media.ts';
import { wavHeader } from '../../src/engines/media/wav.ts';
import { systemClock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import {
  TOY_SPEECH_TOKENS,
  TOY_VOICE_CONFIG,
  toneSamples,
  toySpeechModel,
  toyVoiceModel,
  portraitSvg,
} from '../support/engine-fixtures.ts';

const call = { signal: new AbortController().signal };

export async function openMedia(): Promise<Media> {
  return Media.open({ searchPath: '', log: silentLog, clock: systemClock() });
}

export function portraitJpeg(): Promise<Buffer> {
  return sharp(Buffer.from(portraitSvg())).jpeg({ quality: 82 }).toBuffer();
}

/** Tones of half a second (`a`, `b`) and pauses of a second (space). */
export function toneWav(letters: string): Buffer {
  const pcm = toneSamples(letters);
  return Buffer.concat([wavHeader(pcm.length), pcm]);
}

const TELEPHONE_RATE = 8_000;

/** Header of a WAV file at 8 kHz, which differs from the rate of speech models, so that it is resampled. */
export function telephoneHeader(dataBytes: number): Buffer {
  const header = wavHeader(dataBytes);
  header.writeUInt32LE(TELEPHONE_RATE, 24);
  header.writeUInt32LE(TELEPHONE_RATE * 2, 28);
  return header;
}

export interface ClipOptions {
  readonly letters?: string;
  readonly width: number;
  readonly height: number;
  readonly seconds: number;
  readonly framesPerSecond: number;
}

/** An MP4 that pans over the portrait, with the tones of `letters`. */
export async function makeClip(folder: string, options: ClipOptions): Promise<Buffer> {
  const { letters, ...size } = options;
  const media = await openMedia();
  const imagePath = join(folder, 'clip.png');
  const outputPath = join(folder, 'clip.mp4');
  await writeFile(imagePath, await sharp(Buffer.from(portraitSvg())).png().toBuffer());
  let audioPath: string | undefined;
  if (letters !== undefined) {
    audioPath = join(folder, 'clip.wav');
    await writeFile(audioPath, toneWav(letters));
  }
  await media.stillToVideo({ imagePath, audioPath, outputPath, move: 'in', ...size }, call);
  return readFile(outputPath);
}

/** Files of the toy speech model, and the settings that use them. */
export async function toySpeech(folder: string): Promise<string> {
  const model = join(folder, 'toy.onnx');
  const tokens = join(folder, 'toy.txt');
  await writeFile(model, toySpeechModel());
  await writeFile(tokens, TOY_SPEECH_TOKENS);
  return `speechModel: { kind: zipformer-ctc, model: ${JSON.stringify(model)}, tokens: ${JSON.stringify(tokens)} }`;
}

/** Writes the toy voice; returns the path of its model. */
export async function toyVoice(folder: string): Promise<string> {
  const model = join(folder, 'en_US-toy-medium.onnx');
  await writeFile(model, toyVoiceModel());
  await writeFile(`${model}.json`, JSON.stringify(TOY_VOICE_CONFIG));
  return model;
}

export interface FilmOptions extends ClipOptions {
  readonly container: 'mp4' | 'mov' | 'webm';
  readonly isBlack?: boolean;
}

/** A video in the formats of other encoders: MP4 and MOV with H.264 and AAC, WebM with VP9 and Opus. */
export async function makeFilm(folder: string, options: FilmOptions): Promise<Buffer> {
  const { container, letters, width, height, seconds, framesPerSecond } = options;
  useEnginePackages('media');
  const { Decoder, Demuxer, Encoder, FilterAPI, Muxer, pipeline } = await import('node-av/api');
  const { Log } = await import('node-av/lib');
  const { AV_LOG_ERROR } = await import('node-av/constants');
  Log.setLevel(AV_LOG_ERROR);
  const path = join(folder, `film.${container}`);
  const { picture, sound, quick } = CODECS[container];
  // A video in which every frame differs everywhere, so that its file has the given size.
  const shape = `size=${width}x${height}:rate=${framesPerSecond}:duration=${seconds}`;
  const drawn =
    options.isBlack === true ? `color=black:${shape}` : `testsrc=${shape},noise=alls=20:allf=t`;
  const input = await Demuxer.open(drawn, { format: 'lavfi' });
  const audio = letters === undefined ? undefined : await Demuxer.open(toneWav(letters));
  const output = await Muxer.open(path, { format: container });
  const stages = async (
    stream: ReturnType<typeof input.video>,
    codec: string,
    how: Parameters<typeof Encoder.create>[1],
  ) => {
    if (stream === undefined) throw new Error('A source has the stream that it was opened for');
    const decoder = await Decoder.create(stream);
    // A name that the library exports.
    return { decoder, encoder: await Encoder.create(codec as never, { decoder, ...how }) };
  };
  const filter = FilterAPI.create('format=yuv420p');
  const { decoder, encoder } = await stages(input.video(), picture, { filter, options: quick });
  const video = [decoder, filter, encoder];
  const heard = audio && (await stages(audio.audio(), sound, { autoResample: true }));
  const run =
    audio === undefined || heard === undefined
      ? pipeline({ video: input }, { video }, output)
      : pipeline({ video: input, audio }, { video, audio: [heard.decoder, heard.encoder] }, output);
  await run.completion;
  await output.close();
  await input.close();
  await audio?.close();
  return readFile(path);
}

const SOUNDS = {
  mp3: ['libmp3lame', 'mp3', 's16p', 24_000],
  opus: ['libopus', 'ogg', 's16', 48_000],
  aac: ['aac', 'adts', 'fltp', 24_000],
  flac: ['flac', 'flac', 's16', 24_000],
  wav: ['pcm_s16le', 'wav', 's16', 24_000],
} as const;

export const SOUND_KINDS = ['mp3', 'opus', 'aac', 'flac', 'wav'] as const;

/** A WAV, or the tones of letters, in the format of speech engines. */
export async function makeSound(
  folder: string,
  sound: Buffer | string,
  kind: keyof typeof SOUNDS,
  bitrate?: string,
): Promise<Buffer> {
  useEnginePackages('media');
  const { Decoder, Demuxer, Encoder, FilterAPI, Muxer, pipeline } = await import('node-av/api');
  const { Log } = await import('node-av/lib');
  const { AV_LOG_ERROR } = await import('node-av/constants');
  Log.setLevel(AV_LOG_ERROR);
  const [codec, format, samples, rate] = SOUNDS[kind];
  const path = join(folder, `sound.${kind}`);
  const input = await Demuxer.open(typeof sound === 'string' ? toneWav(sound) : sound);
  const stream = input.audio();
  if (stream === undefined) throw new Error('A WAV has a sound');
  const decoder = await Decoder.create(stream);
  const shape = `aformat=sample_fmts=${samples}:sample_rates=${rate}:channel_layouts=mono`;
  const filter = FilterAPI.create(shape);
  // A name that the library exports.
  const encoder = await Encoder.create(codec as never, {
    decoder,
    filter,
    ...(bitrate !== undefined && { bitrate }),
  });
  const output = await Muxer.open(path, { format });
  await pipeline({ audio: input }, { audio: [decoder, filter, encoder] }, output).completion;
  await output.close();
  await input.close();
  return readFile(path);
}

const H264 = { picture: 'libx264', sound: 'aac', quick: { preset: 'veryfast', crf: '20' } };
const VP9 = { deadline: 'realtime', 'cpu-used': '8' };
const CODECS = {
  mp4: H264,
  mov: H264,
  webm: { picture: 'libvpx-vp9', sound: 'libopus', quick: VP9 },
} as const;
