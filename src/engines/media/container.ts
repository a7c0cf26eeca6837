/**
 * Tells a media container by its first bytes. The decoder is then told this one format and may use
 * no other, so that playlists, concat scripts and descriptions, whose lines name other files, are
 * never read as media.
 */
import { open } from 'node:fs/promises';
import { Fault } from '../../kernel/faults.ts';

/** Names as FFmpeg's demuxers have them. */
export type ContainerFormat =
  | 'mov'
  | 'matroska'
  | 'avi'
  | 'wav'
  | 'ogg'
  | 'flac'
  | 'aac'
  | 'mp3'
  | 'flv'
  | 'mpegts'
  | 'mpeg'
  | 'amr'
  | 'aiff'
  | 'asf'
  | 'jpeg_pipe'
  | 'png_pipe'
  | 'webp_pipe';

/** A file of foreign media, with the only format that it may be read as. */
export interface MediaInput {
  readonly path: string;
  readonly format: ContainerFormat;
}

const HEAD_BYTES = 4096;
const ISO_BOXES = new Set(['ftyp', 'moov', 'mdat', 'wide', 'free', 'skip']);
const TS_PACKET_BYTES = 188;
const TS_SYNC = 0x47;

/** Formats whose first bytes are fixed. */
const MAGIC: readonly (readonly [string, ContainerFormat])[] = [
  ['\x1a\x45\xdf\xa3', 'matroska'],
  ['OggS', 'ogg'],
  ['fLaC', 'flac'],
  ['ID3', 'mp3'],
  ['FLV\x01', 'flv'],
  ['\x00\x00\x01\xba', 'mpeg'],
  ['#!AMR', 'amr'],
  ['\x30\x26\xb2\x75\x8e\x66\xcf\x11', 'asf'],
  ['\xff\xd8\xff', 'jpeg_pipe'],
  ['\x89PNG\r\n\x1a\n', 'png_pipe'],
];

/** Formats inside a RIFF or FORM box, by the word at byte 8. */
const BOXED = new Map<string, ContainerFormat>([
  ['RIFFAVI ', 'avi'],
  ['RIFFWAVE', 'wav'],
  ['RIFFWEBP', 'webp_pipe'],
  ['FORMAIFF', 'aiff'],
  ['FORMAIFC', 'aiff'],
]);

function audioFrame(head: Buffer): ContainerFormat | undefined {
  const [first = 0, second = 0] = head;
  if (first !== 0xff) return undefined;
  // Both start with eleven or twelve ones; ADTS has layer 0, which MPEG audio never has.
  if ((second & 0xf6) === 0xf0) return 'aac';
  const hasLayer = (second & 0x06) !== 0;
  return (second & 0xe0) === 0xe0 && hasLayer ? 'mp3' : undefined;
}

/** The container that starts with `head`, or `undefined`. */
function containerOf(head: Buffer): ContainerFormat | undefined {
  if (head.length < 12) return undefined;
  const text = head.toString('latin1', 0, 16);
  if (ISO_BOXES.has(text.slice(4, 8))) return 'mov';
  const boxed = BOXED.get(text.slice(0, 4) + text.slice(8, 12));
  if (boxed !== undefined) return boxed;
  for (const [magic, format] of MAGIC) if (text.startsWith(magic)) return format;
  const syncs = [0, 1, 2].map((packet) => head[packet * TS_PACKET_BYTES]);
  if (syncs.every((byte) => byte === TS_SYNC)) return 'mpegts';
  return audioFrame(head);
}

const PLAYLIST =
  /^\uFEFF?\s*(#EXTM3U|ffconcat|\[playlist\]|<\?xml|<MPD|<smil|v=0|#EXT|\[Reference\])/i;

function isImage(format: ContainerFormat): boolean {
  return format.endsWith('_pipe');
}

async function readHead(path: string, head: Buffer): Promise<number> {
  const file = await open(path, 'r');
  try {
    return (await file.read(head, 0, head.length, 0)).bytesRead;
  } finally {
    await file.close();
  }
}

/** Looks at a file. Faults: INVALID_VIDEO_FORMAT for what is no media of the wanted kind. */
export async function inspectMedia(path: string, want: 'av' | 'image'): Promise<MediaInput> {
  const head = Buffer.alloc(HEAD_BYTES);
  const bytesRead = await readHead(path, head);
  const format = containerOf(head.subarray(0, bytesRead));
  if (format !== undefined && isImage(format) === (want === 'image')) return { path, format };
  if (PLAYLIST.test(head.toString('utf8', 0, Math.min(bytesRead, 64)))) {
    throw new Fault('INVALID_VIDEO_FORMAT', {
      message: 'The file is a playlist or a description: send the media itself',
      canRetry: false,
    });
  }
  const known =
    want === 'image' ? 'a JPEG, PNG or WebP image' : 'MP4, MOV, WebM, MKV, AVI or audio';
  throw new Fault('INVALID_VIDEO_FORMAT', { message: `The file is not ${known}`, canRetry: false });
}
