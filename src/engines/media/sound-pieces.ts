/**
 * Detects a sound file that was cut off by its pieces: frames of MP3 and AAC, pages of Ogg, chunks
 * of WAV. Each contains its length, and the last one of a complete file ends where the file does.
 * Decodes nothing.
 *
 * Unknown data ends the check without a finding, because writers append tags and padding.
 */
import { open } from 'node:fs/promises';
import { FileWindow, type MediaInput } from './container.ts';

/** Pieces have a few milliseconds each: enough for hours of sound. */
const MAX_PIECES = 1_000_000;
/** An Ogg page has a head of 27 bytes and a table of at most 255 bytes. */
const OGG_HEAD_BYTES = 27;
const PIECE_HEAD_BYTES = OGG_HEAD_BYTES + 255;
const ID3_HEAD_BYTES = 10;
const ID3_TAIL_BYTES = 128;
const ADTS_HEAD_BYTES = 7;
const WAV_HEAD_BYTES = 12;
const CHUNK_HEAD_BYTES = 8;
/** Writers that do not know the length yet write 0, or almost the maximum of 31 or 32 bits. */
const UNKNOWN_FROM_BYTES = 0x7fff_0000;

/** Length in bytes of the piece that starts with `head`; `undefined` for other data. */
type PieceLength = (head: Buffer, at: number) => number | undefined;

const PIECES: Readonly<Partial<Record<MediaInput['format'], PieceLength>>> = {
  mp3: mp3Length,
  aac: adtsLength,
  ogg: oggLength,
  wav: wavLength,
};

/** Whether the file ends inside a piece. `false` for formats whose pieces have no length. */
export async function isSoundCut({ path, format }: MediaInput): Promise<boolean> {
  const lengthOf = PIECES[format];
  if (lengthOf === undefined) return false;
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const window = new FileWindow(file);
    let at = 0;
    for (let count = 0; at < size && count < MAX_PIECES; count += 1) {
      const length = lengthOf(await window.at(at, PIECE_HEAD_BYTES), at);
      if (length === undefined) return false;
      at += length;
    }
    return at > size;
  } finally {
    await file.close();
  }
}

/** Bit rates of layer III in kbit/s by index (ISO 11172-3 and 13818-3); 0 if undefined. */
const MPEG1_KBITS = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0];
const MPEG2_KBITS = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0];
const MPEG1_RATES = [44_100, 48_000, 32_000, 0];

function mp3Length(head: Buffer, at: number): number | undefined {
  const tag = head.toString('latin1', 0, 3);
  if (tag === 'ID3') return id3Length(head);
  if (tag === 'TAG' && at > 0) return ID3_TAIL_BYTES;
  if (head.length < 4) return undefined;
  const bits = head.readUInt32BE(0);
  const [version, layer] = [(bits >>> 19) & 3, (bits >>> 17) & 3];
  // Eleven 1 bits; version 1 is reserved, and layer III is encoded as 1.
  if (bits >>> 21 !== 0x7ff || version === 1 || layer !== 1) return undefined;
  const isMpeg1 = version === 3;
  const kbits = (isMpeg1 ? MPEG1_KBITS : MPEG2_KBITS)[(bits >>> 12) & 15] ?? 0;
  const rate = (MPEG1_RATES[(bits >>> 10) & 3] ?? 0) / (isMpeg1 ? 1 : version === 2 ? 2 : 4);
  if (kbits === 0 || rate === 0) return undefined;
  return Math.floor(((isMpeg1 ? 144 : 72) * kbits * 1_000) / rate) + ((bits >>> 9) & 1);
}

/** ID3v2 §3.1: four times seven bits of length, and a footer if its flag is set. */
function id3Length(head: Buffer): number | undefined {
  if (head.length < ID3_HEAD_BYTES) return undefined;
  const hasFooter = ((head[5] ?? 0) & 0x10) !== 0;
  let length = 0;
  for (const byte of head.subarray(6, 10)) length = length * 128 + (byte & 0x7f);
  return length + ID3_HEAD_BYTES * (hasFooter ? 2 : 1);
}

function adtsLength(head: Buffer): number | undefined {
  const [first = 0, second = 0, , fourth = 0, fifth = 0, sixth = 0] = head;
  if (first !== 0xff || (second & 0xf6) !== 0xf0) return undefined;
  const length = ((fourth & 3) << 11) | (fifth << 3) | (sixth >>> 5);
  return length < ADTS_HEAD_BYTES ? undefined : length;
}

function oggLength(head: Buffer): number | undefined {
  if (head.toString('latin1', 0, 4) !== 'OggS') return undefined;
  const segments = head[OGG_HEAD_BYTES - 1] ?? 0;
  const table = head.subarray(OGG_HEAD_BYTES, OGG_HEAD_BYTES + segments);
  return OGG_HEAD_BYTES + segments + table.reduce((sum, bytes) => sum + bytes, 0);
}

function wavLength(head: Buffer, at: number): number | undefined {
  if (at === 0) return WAV_HEAD_BYTES;
  if (head.length < CHUNK_HEAD_BYTES) return undefined;
  const length = head.readUInt32LE(4);
  const isData = head.toString('latin1', 0, 4) === 'data';
  if (isData && (length === 0 || length >= UNKNOWN_FROM_BYTES)) return undefined;
  // Some writers omit the padding byte of an odd last chunk.
  return CHUNK_HEAD_BYTES + length + (isData ? 0 : length % 2);
}
