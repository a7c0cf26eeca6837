/**
 * The only access to `batches_file` and `batches_piece`. Only the account of a file can read it, from
 * its completion until it expires or is deleted; its bytes are deleted with it.
 *
 * An upload counts with its announced size, so that concurrent uploads cannot exceed the storage limit
 * of an account or of the server.
 */
import * as z from 'zod';
import { nextTurn } from '../core/event-loop.ts';
import {
  type Queryable,
  type Store,
  Whole,
  deleteInBatches,
  oneAtATime,
  rowShape,
} from '../db/db.ts';
import { type BatchUse, NO_USE, USE_COLUMNS, useOfSums, useValues } from './batch-use.ts';

/** The result file of a batch to which a piece belongs; an upload has only part 0. */
export const OUTPUT_PART = 0;
export const ERROR_PART = 1;

const FILE = rowShape({
  id: z.string(),
  contentId: z.string(),
  part: Whole,
  name: z.string(),
  purpose: z.string(),
  sizeBytes: Whole,
  createdMs: Whole,
  expiresMs: Whole,
});
export type StoredFile = ReturnType<typeof FILE.parse>;

export interface NewFile extends StoredFile {
  readonly accountId: string;
}

/** One line of a result, or a slice of an upload. */
export interface Piece {
  readonly contentId: string;
  /** Position in the content; in a result, the line number of the request. */
  readonly seq: number;
  readonly part: number;
  readonly body: Buffer;
  /** Usage and cost of a line that was sold. */
  readonly use?: BatchUse;
}

export interface StorageLimits {
  readonly maxFiles: number;
  readonly maxCallerBytes: number;
  readonly maxBytes: number;
}

export type StorageLimit = 'files' | 'caller' | 'all';

export interface ListRequest {
  readonly limit: number;
  readonly order: 'asc' | 'desc';
  readonly after: Pick<StoredFile, 'createdMs' | 'id'> | undefined;
  readonly purpose: string | undefined;
}

export interface PartSum {
  readonly lines: number;
  readonly sizeBytes: number;
  readonly use: BatchUse;
}

const PIECES = 256;
/** Bytes per read; a single piece may be larger. */
const READ_BYTES = 256 * 1024;
/** Bytes that one statement deletes in some milliseconds. */
const REMOVED_BYTES = 4 * 1024 * 1024;
const EXPIRED_FILES = 100;

export class FileTable {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Begins a file of at most `file.sizeBytes`, which expires at `file.expiresMs` unless it is
   * finished. `beside`: other stored bytes of the account and of all. Returns the exceeded limit.
   */
  async begin(
    file: NewFile,
    limits: StorageLimits,
    beside: { readonly callerBytes: number; readonly allBytes: number },
  ): Promise<StorageLimit | undefined> {
    return await this.#store.transaction(async (tx) => {
      await oneAtATime(tx, this.#store.dialect, 'batches_file');
      const [own] = await tx.query<{ files: bigint; bytes: bigint }>(
        `SELECT count(*) AS files, ${sum('size_bytes')} AS bytes FROM batches_file
         WHERE account_id = $1`,
        [file.accountId],
      );
      const { sizeBytes } = file;
      if (Number(own?.files ?? 0n) >= limits.maxFiles) return 'files';
      const callerBytes = Number(own?.bytes ?? 0n) + beside.callerBytes + sizeBytes;
      if (callerBytes > limits.maxCallerBytes) return 'caller';
      const [all] = await tx.query<{ bytes: bigint }>(
        `SELECT ${sum('size_bytes')} AS bytes FROM batches_file`,
      );
      const allBytes = Number(all?.bytes ?? 0n) + beside.allBytes + sizeBytes;
      if (allBytes > limits.maxBytes) return 'all';
      await insert(tx, file, 'writing');
      return undefined;
    });
  }

  async storedBytes(accountId: string): Promise<number> {
    const [row] = await this.#store.query<{ bytes: bigint }>(
      `SELECT ${sum('size_bytes')} AS bytes FROM batches_file WHERE account_id = $1`,
      [accountId],
    );
    return Number(row?.bytes ?? 0n);
  }

  /** Not durable, because a crash ends the upload anyway. */
  async write(piece: Piece): Promise<void> {
    await this.#store.transaction((tx) => addPieces(tx, [piece]), { durable: false });
  }

  /** Completes a file; returns `false` if it has expired meanwhile. */
  async finish(
    id: string,
    facts: Pick<StoredFile, 'name' | 'purpose' | 'sizeBytes' | 'expiresMs'>,
    nowMs: number,
  ): Promise<boolean> {
    const { name, purpose, sizeBytes, expiresMs } = facts;
    const rows = await this.#store.query(
      `UPDATE batches_file SET state = 'ready', name = $2, purpose = $3, size_bytes = $4,
         expires_ms = now_ms($5) - $5 + $6
       WHERE id = $1 AND state = 'writing' RETURNING id`,
      [id, name, purpose, sizeBytes, nowMs, expiresMs],
    );
    return rows.length === 1;
  }

  async find(
    accountId: string,
    id: string,
    nowMs: number,
    db: Queryable = this.#store,
  ): Promise<StoredFile | undefined> {
    const rows = await db.query(
      `SELECT ${FILE.columns} FROM batches_file
       WHERE id = $1 AND account_id = $2 AND state = 'ready' AND expires_ms > now_ms($3)`,
      [id, accountId, nowMs],
    );
    return rows.map(FILE.parse)[0];
  }

  async list(accountId: string, request: ListRequest, nowMs: number): Promise<StoredFile[]> {
    const { limit, order, after, purpose } = request;
    const isOldestFirst = order === 'asc';
    const createdMs = after?.createdMs ?? (isOldestFirst ? -1 : Number.MAX_SAFE_INTEGER);
    const rows = await this.#store.query(
      `SELECT ${FILE.columns} FROM batches_file
       WHERE account_id = $1 AND state = 'ready' AND expires_ms > now_ms($2)
         AND (created_ms, id) ${isOldestFirst ? '>' : '<'} ($3, $4) AND ($5 = '' OR purpose = $5)
       ORDER BY created_ms ${order}, id ${order} LIMIT $6`,
      [accountId, nowMs, createdMs, after?.id ?? '', purpose ?? '', limit],
    );
    return rows.map(FILE.parse);
  }

  /** Hides a file before its deletion, in the transaction that checks that no batch reads it. */
  async hide(tx: Queryable, accountId: string, id: string): Promise<boolean> {
    const rows = await tx.query(
      `UPDATE batches_file SET state = 'deleting', expires_ms = 0
       WHERE id = $1 AND account_id = $2 AND state = 'ready' RETURNING id`,
      [id, accountId],
    );
    return rows.length === 1;
  }

  /** Some files to delete: expired, hidden or incomplete ones. */
  async expired(nowMs: number): Promise<StoredFile[]> {
    const rows = await this.#store.query(
      `SELECT ${FILE.columns} FROM batches_file WHERE expires_ms <= now_ms($1) ORDER BY expires_ms
       LIMIT ${EXPIRED_FILES}`,
      [nowMs],
    );
    return rows.map(FILE.parse);
  }

  async removeExpired(nowMs: number): Promise<void> {
    await deleteInBatches(EXPIRED_FILES, async () => {
      const files = await this.expired(nowMs);
      for (const file of files) await this.remove(file);
      return files;
    });
  }

  /** Deletes the bytes of a file, then the file; after a crash in between, the sweep repeats it. */
  async remove({ id, contentId, part }: Pick<StoredFile, 'id' | 'contentId' | 'part'>) {
    await this.#removePieces(contentId, part);
    await this.#store.query('DELETE FROM batches_file WHERE id = $1', [id]);
  }

  async #removePieces(contentId: string, part: number): Promise<void> {
    for (;;) {
      const last = await this.#lastWithin(contentId, part, -1, REMOVED_BYTES);
      if (last === undefined) return;
      const sql = 'DELETE FROM batches_piece WHERE content_id = $1 AND part = $2 AND seq <= $3';
      // If a crash restores pieces, the next sweep deletes them, because the file is hidden.
      await this.#store.transaction((tx) => tx.query(sql, [contentId, part, last]), {
        durable: false,
      });
      await nextTurn();
    }
  }

  /** Yields the bytes of one part of a content in order, a few pieces at a time. */
  async *read(contentId: string, part: number): AsyncGenerator<Buffer> {
    let after = -1;
    for (;;) {
      const last = await this.#lastWithin(contentId, part, after, READ_BYTES);
      if (last === undefined) return;
      const rows = await this.#store.query<{ body: Buffer }>(
        `SELECT body FROM batches_piece
         WHERE content_id = $1 AND part = $2 AND seq > $3 AND seq <= $4 ORDER BY seq`,
        [contentId, part, after, last],
      );
      yield Buffer.concat(rows.map(({ body }) => body));
      after = last;
      // SQLite reads synchronously.
      await nextTurn();
    }
  }

  /** The last piece after `after` up to which the bytes are at most `maxBytes`; at least one piece. */
  async #lastWithin(
    contentId: string,
    part: number,
    after: number,
    maxBytes: number,
  ): Promise<number | undefined> {
    const sizes = await this.#store.query<{ seq: bigint; size_bytes: bigint }>(
      `SELECT seq, size_bytes FROM batches_piece WHERE content_id = $1 AND part = $2 AND seq > $3
       ORDER BY seq LIMIT ${PIECES}`,
      [contentId, part, after],
    );
    let last: number | undefined;
    let bytes = 0;
    for (const { seq, size_bytes: size } of sizes) {
      bytes += Number(size);
      if (last !== undefined && bytes > maxBytes) break;
      last = Number(seq);
    }
    return last;
  }

  async linesOf(contentId: string): Promise<Set<number>> {
    const rows = await this.#store.query<{ seq: bigint }>(
      'SELECT seq FROM batches_piece WHERE content_id = $1',
      [contentId],
    );
    return new Set(rows.map(({ seq }) => Number(seq)));
  }

  async sumOf(contentId: string, part: number, db: Queryable = this.#store): Promise<PartSum> {
    const [row] = await db.query(
      `SELECT count(*) AS lines, ${sum('size_bytes')} AS bytes,
         ${USE_COLUMNS.map((name) => `${sum(name)} AS ${name}`).join(', ')} FROM batches_piece
       WHERE content_id = $1 AND part = $2`,
      [contentId, part],
    );
    if (row === undefined) return { lines: 0, sizeBytes: 0, use: NO_USE };
    return { lines: Number(row['lines']), sizeBytes: Number(row['bytes']), use: useOfSums(row) };
  }

  async hasLine(contentId: string, seq: number): Promise<boolean> {
    const rows = await this.#store.query(
      'SELECT seq FROM batches_piece WHERE content_id = $1 AND seq = $2',
      [contentId, seq],
    );
    return rows.length === 1;
  }

  /** Delays the expiry of a file that a batch will read. */
  async keepUntil(tx: Queryable, id: string, untilMs: number): Promise<void> {
    await tx.query('UPDATE batches_file SET expires_ms = $2 WHERE id = $1 AND expires_ms < $2', [
      id,
      untilMs,
    ]);
  }

  /** Adds a file whose pieces are already stored, in the transaction that ends its batch. */
  async publish(tx: Queryable, file: NewFile): Promise<void> {
    await insert(tx, file, 'ready');
  }
}

/** Adds the pieces that do not exist yet; returns their number. */
export async function addPieces(tx: Queryable, pieces: readonly Piece[]): Promise<number> {
  const values = pieces.flatMap(({ contentId, seq, part, body, use = NO_USE }) => {
    return [contentId, seq, part, body.length, body, ...useValues(use)];
  });
  const width = values.length / pieces.length;
  const rowOf = (_: Piece, at: number): string => {
    const places = Array.from({ length: width }, (_none, column) => `$${at * width + column + 1}`);
    return `(${places.join(', ')})`;
  };
  const rows = await tx.query(
    `INSERT INTO batches_piece (content_id, seq, part, size_bytes, body, ${USE_COLUMNS.join(', ')})
     VALUES ${pieces.map(rowOf).join(', ')} ON CONFLICT (content_id, seq) DO NOTHING RETURNING seq`,
    values,
  );
  return rows.length;
}

/** A file that is created now. It expires by the clock of the database. */
async function insert(tx: Queryable, file: NewFile, state: 'writing' | 'ready'): Promise<void> {
  await tx.query(
    `INSERT INTO batches_file (id, account_id, content_id, part, name, purpose, state, size_bytes,
       created_ms, expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now_ms($9) - $9 + $10)`,
    [
      file.id,
      file.accountId,
      file.contentId,
      file.part,
      file.name,
      file.purpose,
      state,
      file.sizeBytes,
      file.createdMs,
      file.expiresMs,
    ],
  );
}

function sum(of: string): string {
  return `CAST(COALESCE(SUM(${of}), 0) AS BIGINT)`;
}
