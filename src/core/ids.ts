/** Identifiers and secrets; tests pass a seeded `Ids`. */
import { hash, randomBytes, randomFillSync, randomUUID } from 'node:crypto';

export interface Ids {
  bytes(size: number): Buffer;
  /** Lowercase hex of `size` random bytes. */
  hex(size: number): string;
  uuid(): string;
  /** A 32-digit id that sorts by time: inserts stay adjacent on disk in tables of any size. */
  ordered(nowMs: number): string;
  /** A uniform number in [0, 1), for jitter and sampling, never for secrets. */
  fraction(): number;
}

/** Random bytes are drawn in blocks: one system call serves many request ids. */
const POOL_BYTES = 4096;

export function systemIds(): Ids {
  const pool = Buffer.allocUnsafe(POOL_BYTES);
  let used = POOL_BYTES;
  function hex(size: number): string {
    if (size > POOL_BYTES / 4) return randomBytes(size).toString('hex');
    if (used + size > POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    used += size;
    return pool.toString('hex', used - size, used);
  }
  return {
    bytes: (size) => randomBytes(size),
    hex,
    uuid: () => randomUUID(),
    ordered: orderedBy(hex),
    fraction: () => Math.random(),
  };
}

/** Hex digits of an ordered id: 12 of the time, 20 random. */
const ORDERED_RANDOM_BYTES = 10;

/** Returns a generator of ids that sort by time, with random digits from `hex`. */
export function orderedBy(hex: (size: number) => string): (nowMs: number) => string {
  // Cached text of the last millisecond, since many requests share one.
  let lastMs = -1;
  let lastTime = '';
  return (nowMs) => {
    if (nowMs !== lastMs) {
      lastMs = nowMs;
      lastTime = nowMs.toString(16).padStart(12, '0');
    }
    return lastTime + hex(ORDERED_RANDOM_BYTES);
  };
}

/** Formats an ordered id as a UUID of version 7 (RFC 9562), which sorts by time too. */
export function uuidOf(ordered: string): string {
  const [time, version, variant] = [
    ordered.slice(0, 12),
    ordered.slice(13, 16),
    ordered.slice(17, 20),
  ];
  return `${time.slice(0, 8)}-${time.slice(8)}-7${version}-8${variant}-${ordered.slice(20)}`;
}

export function sha256Hex(data: string | Uint8Array): string {
  return hash('sha256', data, 'hex');
}
