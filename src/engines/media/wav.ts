/**
 * WAV files of speech audio (signed 16-bit, 16 kHz, one channel). Cuts long audio into pieces at
 * its quietest positions, so that no word is split.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { SPEECH_BYTES_PER_SECOND, SPEECH_RATE } from './media-task.ts';

const HEADER_BYTES = 44;
const SAMPLE_BYTES = 2;
/** The header has 32-bit lengths. */
const MAX_DATA_BYTES = 2 ** 32 - HEADER_BYTES;

export function wavHeader(dataBytes: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(36 + dataBytes, 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(SPEECH_RATE, 24);
  header.writeUInt32LE(SPEECH_BYTES_PER_SECOND, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(dataBytes, 40);
  return header;
}

/**
 * Bytes of samples in a WAV file of speech audio with the header of `wavHeader`; `undefined` for
 * every other file. Such a file needs no decoder.
 */
export async function speechWavBytes(path: string): Promise<number | undefined> {
  const file = await open(path, 'r');
  try {
    const dataBytes = (await file.stat()).size - HEADER_BYTES;
    const isWhole = dataBytes > 0 && dataBytes % SAMPLE_BYTES === 0;
    if (!isWhole || dataBytes > MAX_DATA_BYTES) return undefined;
    const { buffer } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    return buffer.equals(wavHeader(dataBytes)) ? dataBytes : undefined;
  } finally {
    await file.close();
  }
}

/** Writes the first `bytes` of the samples of such a file to `outputPath`. */
export async function copySamples(
  path: string,
  outputPath: string,
  bytes: number,
  signal: AbortSignal,
): Promise<void> {
  const samples = createReadStream(path, { start: HEADER_BYTES, end: HEADER_BYTES + bytes - 1 });
  await pipeline(samples, createWriteStream(outputPath), { signal });
}

export interface AudioPiece {
  readonly startMs: number;
  readonly endMs: number;
  readonly head: Buffer;
  readonly startByte: number;
  readonly sizeBytes: number;
}

const WINDOW_SAMPLES = SPEECH_RATE / 50;

/** The index of the quietest sample within the last `tail` of `pcm`. */
export function quietestCut(pcm: Buffer, tailSamples: number): number {
  const samples = Math.floor(pcm.length / 2);
  const from = Math.max(0, samples - tailSamples);
  let best = samples;
  let least = Infinity;
  for (let at = from; at + WINDOW_SAMPLES <= samples; at += WINDOW_SAMPLES) {
    let energy = 0;
    for (let i = at; i < at + WINDOW_SAMPLES; i += 1) energy += pcm.readInt16LE(i * 2) ** 2;
    // The later of two equal positions, so that pieces stay long.
    if (energy <= least) {
      least = energy;
      best = at + WINDOW_SAMPLES / 2;
    }
  }
  return best;
}

/**
 * The pieces of a file of raw samples: each has at most `pieceSeconds` and is cut at its quietest
 * position within the last `tailSeconds`. Only such a tail is in memory.
 */
export async function* audioPieces(
  path: string,
  pieceSeconds: number,
  tailSeconds: number,
): AsyncGenerator<AudioPiece> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    // No bitwise operators: they use 32 bits, and eighteen hours exceed them.
    const samplesBytes = size - (size % 2);
    let position = 0;
    while (position < samplesBytes) {
      const longest = Math.min(samplesBytes - position, pieceSeconds * SPEECH_BYTES_PER_SECOND);
      const isLast = position + longest >= samplesBytes;
      const bytes = isLast ? longest : await cutWithin(file, position, longest, tailSeconds);
      const toMs = (offset: number): number =>
        Math.round((offset / SPEECH_BYTES_PER_SECOND) * 1000);
      yield {
        startMs: toMs(position),
        endMs: toMs(position + bytes),
        head: wavHeader(bytes),
        startByte: position,
        sizeBytes: bytes,
      };
      position += bytes;
    }
  } finally {
    await file.close();
  }
}

async function cutWithin(
  file: FileHandle,
  position: number,
  longest: number,
  tailSeconds: number,
): Promise<number> {
  const tailBytes = Math.min(longest, tailSeconds * SPEECH_BYTES_PER_SECOND);
  const tail = Buffer.alloc(tailBytes);
  await file.read(tail, 0, tailBytes, position + longest - tailBytes);
  return longest - tailBytes + quietestCut(tail, tailBytes / 2) * 2;
}
