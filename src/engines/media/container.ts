/**
 * Detects the container format of a media file by its first bytes. The decoder is then restricted
 * to this one format, so that playlists, concat scripts and similar files, which refer to other
 * files, are never read as media.
 *
 * Also checks the box structure of a video file, to detect a file that was cut off.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { Fault } from '../../core/faults.ts';
import { sniffMedia } from '../../core/media-type.ts';

/** Containers by the names of FFmpeg's demuxers, with their media types. */
export const CONTAINER_TYPES = {
  mov: 'video/mp4',
  matroska: 'video/webm',
  avi: 'video/x-msvideo',
  wav: 'audio/wav',
  ogg: 'audio/ogg',
  flac: 'audio/flac',
  aac: 'audio/aac',
  mp3: 'audio/mpeg',
  flv: 'video/x-flv',
  mpegts: 'video/mp2t',
  mpeg: 'video/mpeg',
  amr: 'audio/amr',
  aiff: 'audio/aiff',
  asf: 'video/x-ms-wmv',
  jpeg_pipe: 'image/jpeg',
  png_pipe: 'image/png',
  webp_pipe: 'image/webp',
} as const;
type ContainerFormat = keyof typeof CONTAINER_TYPES;

/** An untrusted media file, with the only format that a decoder may use. */
export interface MediaInput {
  readonly path: string;
  readonly format: ContainerFormat;
}

const HEAD_BYTES = 4096;
const ISO_BOXES = new Set(['ftyp', 'moov', 'mdat', 'wide', 'free', 'skip']);
const TS_PACKET_BYTES = 188;
const TS_SYNC = 0x47;

/** Containers that only decoders handle. */
const MAGIC: readonly (readonly [string, ContainerFormat])[] = [
  ['\x1a\x45\xdf\xa3', 'matroska'],
  ['FLV\x01', 'flv'],
  ['\0\0\x01\xba', 'mpeg'],
  ['#!AMR', 'amr'],
  ['\x30\x26\xb2\x75\x8e\x66\xcf\x11', 'asf'],
];
/** Containers that callers can send, by media type; MPEG there is also a bare stream. */
const BY_TYPE = new Map(
  (['avi', 'wav', 'ogg', 'flac', 'mp3', 'aiff', 'jpeg_pipe', 'png_pipe', 'webp_pipe'] as const).map(
    (format) => [CONTAINER_TYPES[format] as string, format],
  ),
);

function audioFrame(head: Buffer): ContainerFormat | undefined {
  const [first = 0, second = 0] = head;
  if (first !== 0xff) return undefined;
  // Both start with eleven or twelve 1 bits; ADTS has layer 0, which MPEG audio never has.
  if ((second & 0xf6) === 0xf0) return 'aac';
  const hasLayer = (second & 0x06) !== 0;
  return (second & 0xe0) === 0xe0 && hasLayer ? 'mp3' : undefined;
}

/** The container format of `head`, or `undefined`. */
function containerOf(head: Buffer): ContainerFormat | undefined {
  if (head.length < 12) return undefined;
  const text = head.toString('latin1', 0, 8);
  if (ISO_BOXES.has(text.slice(4))) return 'mov';
  const known = MAGIC.find(([magic]) => text.startsWith(magic))?.[1];
  if (known !== undefined) return known;
  const syncs = [0, 1, 2].map((packet) => head[packet * TS_PACKET_BYTES]);
  if (syncs.every((byte) => byte === TS_SYNC)) return 'mpegts';
  return BY_TYPE.get(sniffMedia(head) ?? '') ?? audioFrame(head);
}

const PLAYLIST =
  /^\uFEFF?\s{0,99}(#EXTM3U|ffconcat|\[playlist\]|<\?xml|<MPD|<smil|v=0|#EXT|\[Reference\])/i;

async function readHead(path: string): Promise<Buffer> {
  const file = await open(path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** Detects the format of a file. Faults: INVALID_VIDEO_FORMAT if it is of another kind. */
export async function inspectMedia(path: string, want: 'av' | 'image'): Promise<MediaInput> {
  const head = await readHead(path);
  const format = containerOf(head);
  if (format?.endsWith('_pipe') === (want === 'image')) return { path, format };
  const known =
    want === 'image' ? 'a JPEG, PNG or WebP image' : 'MP4, MOV, WebM, MKV, AVI or audio';
  const message = PLAYLIST.test(head.toString('utf8', 0, 64))
    ? 'The file is a playlist or a description: send the media itself'
    : `The file is not ${known}`;
  throw new Fault('INVALID_VIDEO_FORMAT', { message });
}

export type VideoType = 'video/mp4' | 'video/quicktime' | 'video/webm';

/** The video type of a file by its first bytes; `undefined` for all other files. */
export async function videoTypeOf(path: string): Promise<VideoType | undefined> {
  const start = await readHead(path);
  const format = containerOf(start);
  if (format === 'mov') {
    const isMp4 = start.toString('latin1', 4, 8) === 'ftyp' && start[8] !== QUICKTIME_BRAND;
    return isMp4 ? 'video/mp4' : 'video/quicktime';
  }
  // The first element contains the document type, which differs for Matroska with other codecs.
  return format === 'matroska' && start.subarray(0, EBML_HEAD_BYTES).includes('webm')
    ? 'video/webm'
    : undefined;
}

/** `q` of `qt  `: no MP4 brand starts with it. */
const QUICKTIME_BRAND = 0x71;
const EBML_HEAD_BYTES = 64;
/** Limit of boxes or elements; five minutes at 60 frames per second with sound have 35,000. */
const MAX_ELEMENTS = 1_000_000;

/** Whether the file consists of known elements up to its last byte. */
export async function endsWhole(path: string, type: VideoType): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const window = new FileWindow(file);
    let at = 0;
    for (let count = 0; at < size && count < MAX_ELEMENTS; count += 1) {
      const head = await window.at(at);
      const next = type === 'video/webm' ? ebmlLength(head) : boxLength(head, size - at);
      if (next === undefined) return false;
      at += next;
    }
    return at === size && size > 0;
  } finally {
    await file.close();
  }
}

/** Reads a file in windows, so that adjacent heads need one read. */
export class FileWindow {
  readonly #file: FileHandle;
  readonly #bytes = Buffer.alloc(WINDOW_BYTES);
  #start = 0;
  #length = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async at(offset: number, bytes = ELEMENT_HEAD_BYTES): Promise<Buffer> {
    const isThere = offset >= this.#start && offset + bytes <= this.#start + this.#length;
    if (!isThere) {
      const { bytesRead } = await this.#file.read(this.#bytes, 0, WINDOW_BYTES, offset);
      this.#start = offset;
      this.#length = bytesRead;
    }
    const from = offset - this.#start;
    return this.#bytes.subarray(from, Math.min(from + bytes, this.#length));
  }
}

const WINDOW_BYTES = 65_536;
/** The longest head of a box or an element that is read. */
const ELEMENT_HEAD_BYTES = 16;
const BOX_HEAD_BYTES = 8;
const LARGE_BOX_HEAD_BYTES = 16;

/** Bytes of the box that starts with `head` (ISO 14496-12 §4.2); `undefined` if invalid. */
function boxLength(head: Buffer, restBytes: number): number | undefined {
  if (head.length < BOX_HEAD_BYTES) return undefined;
  const length = head.readUInt32BE(0);
  // Only the last box may extend to the end of the file.
  if (length === 0) return head.toString('latin1', 4, 8) === 'mdat' ? restBytes : undefined;
  if (length !== 1) return length >= BOX_HEAD_BYTES ? length : undefined;
  if (head.length < LARGE_BOX_HEAD_BYTES) return undefined;
  const large = Number(head.readBigUInt64BE(8));
  return large >= LARGE_BOX_HEAD_BYTES ? large : undefined;
}

/** Elements whose children are read: the segment and its clusters (RFC 9559 §5.1). */
const ENTERED = new Set([0x18538067, 0x1f43b675]);
/** Known elements beside and inside them; a damaged length leads to an unknown one. */
const SKIPPED = new Set([
  0x1a45dfa3, // EBML
  0x114d9b74, // SeekHead
  0x1549a966, // Info
  0x1654ae6b, // Tracks
  0x1c53bb6b, // Cues
  0x1254c367, // Tags
  0x1043a770, // Chapters
  0x1941a469, // Attachments
  0xe7, // Timestamp
  0xa3, // SimpleBlock
  0xa0, // BlockGroup
  0xab, // PrevSize
  0xa7, // Position
  0x5854, // SilentTracks
  0xec, // Void
  0xbf, // CRC-32
]);

/**
 * Bytes to the next element (RFC 8794 §4 to §6); `undefined` if this one is unknown. For an element
 * that is entered, which live writers leave without a length, only the head counts.
 */
function ebmlLength(head: Buffer): number | undefined {
  const idBytes = Math.clz32(head[0] ?? 0) - 23;
  const first = head[idBytes] ?? 0;
  const sizeBytes = Math.clz32(first) - 23;
  if (idBytes > 4 || sizeBytes > 8 || head.length < idBytes + sizeBytes) return undefined;
  const id = head.readUIntBE(0, idBytes);
  if (ENTERED.has(id)) return idBytes + sizeBytes;
  if (!SKIPPED.has(id)) return undefined;
  let length = first & (0xff >> sizeBytes);
  for (const byte of head.subarray(idBytes + 1, idBytes + sizeBytes)) length = length * 256 + byte;
  return idBytes + sizeBytes + length;
}
