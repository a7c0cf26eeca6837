/**
 * Identifiers and secrets. `Ids` is handed to every part that mints one, so that tests can seed
 * it; `systemIds` draws from the operating system's generator.
 */
import { hash, randomBytes, randomFillSync, randomUUID } from 'node:crypto';

export interface Ids {
  /** `size` random bytes. */
  bytes(size: number): Buffer;
  /** Lowercase hex of `size` random bytes. */
  hex(size: number): string;
  /** A random UUID (version 4). */
  uuid(): string;
  /**
   * A 32-digit id that sorts by time: rows that are written together lie together on disk, so that
   * an insert costs the same with ten million rows as with none.
   */
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

/** A repeatable generator for tests: the same seed gives the same ids. */
export function seededIds(seed: number): Ids {
  let state = seed >>> 0 || 1;
  // Mulberry32: small, well distributed, and of no cryptographic worth.
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  function bytes(size: number): Buffer {
    return Buffer.from(Array.from({ length: size }, () => Math.floor(next() * 256)));
  }
  const hex = (size: number): string => bytes(size).toString('hex');
  return {
    bytes,
    hex,
    ordered: orderedBy(hex),
    uuid: () => {
      const digits = hex(16);
      return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-4${digits.slice(13, 16)}-a${digits.slice(17, 20)}-${digits.slice(20)}`;
    },
    fraction: next,
  };
}

/** Hex digits of an ordered id: 12 of the time, 20 random. */
const ORDERED_RANDOM_BYTES = 10;

function orderedBy(hex: (size: number) => string): (nowMs: number) => string {
  // The text of the millisecond that was asked for last: many requests come in one.
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

/** Lowercase hex SHA-256 of a text or of bytes. */
export function sha256Hex(data: string | Uint8Array): string {
  return hash('sha256', data, 'hex');
}
