/**
 * Encodes RGBA as PNG (W3C PNG, third edition) in bands of rows, each in a turn of its caller. An
 * encoder for whole images takes seconds for the largest ones.
 */
import { constants, crc32, createDeflate } from 'node:zlib';
import { once } from 'node:events';
import type { Turn } from '../../src/core/job-queue.ts';
import { type Rgba, bandsOf } from './matte.ts';

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');
/** 8 bits for each of red, green, blue and alpha; without interlacing. */
const FORMAT = [8, 6, 0, 0, 0];
const CHANNELS = 4;
/** Level 6 takes three times as long for a few percent smaller files. */
const LEVEL = 4;

export async function encodePng(image: Rgba, turn: Turn): Promise<Buffer> {
  const deflate = createDeflate({ level: LEVEL, chunkSize: 256 * 1_024 });
  const chunks: Buffer[] = [SIGNATURE, chunk('IHDR', headOf(image))];
  deflate.on('data', (data: Buffer) => chunks.push(chunk('IDAT', data)));
  try {
    for (const { from, to } of bandsOf(image)) {
      await turn(async () => {
        deflate.write(rowsOf(image, from, to));
        // Resolves when the rows are compressed.
        await new Promise<void>((resolve) => {
          deflate.flush(constants.Z_BLOCK, resolve);
        });
      });
    }
    deflate.end();
    await once(deflate, 'end');
  } finally {
    deflate.destroy();
  }
  return Buffer.concat([...chunks, chunk('IEND', Buffer.alloc(0))]);
}

function headOf({ width, height }: Rgba): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  return Buffer.concat([head, Buffer.from(FORMAT)]);
}

/** Rows with their filter, which is "none": the default of libvips for photos. */
function rowsOf({ width, data }: Rgba, from: number, to: number): Buffer {
  const rowBytes = width * CHANNELS;
  const rows = Buffer.alloc((to - from) * (rowBytes + 1));
  for (let y = from; y < to; y += 1) {
    data.copy(rows, (y - from) * (rowBytes + 1) + 1, y * rowBytes, (y + 1) * rowBytes);
  }
  return rows;
}

function chunk(type: string, data: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(data.length, 0);
  head.write(type, 4, 'latin1');
  const check = Buffer.alloc(4);
  check.writeUInt32BE(crc32(data, crc32(head.subarray(4))), 0);
  return Buffer.concat([head, data, check]);
}
