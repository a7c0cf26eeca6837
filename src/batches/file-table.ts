/**
 * The only place that reads and writes `batches_file` and `batches_piece`. A file is seen by its
 * account alone, from when it is whole until it expires or is deleted; its bytes are deleted with it.
 *
 * A file that is being written counts with the bytes that were announced for it, so that an account
 * never stores more than it may, however many uploads run at once.
 */
import { z } from 'zod';
import { nextTurn } from '../core/event-loop.ts';
import { type Queryable, type Store, Whole, oneAtATime, rowShape } from '../db/db.ts';
import { type BatchUse, NO_USE, USE_COLUMNS, useOfSums, useValues } from './batch-use.ts';

/** Which of the files of a batch a piece belongs to; what was uploaded has one. */
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

/** One line of a result, or a slice of what was uploaded. */
export interface Piece {
  readonly contentId: string;
  /** Place in the content; of a result the number of its line. */
  readonly seq: number;
  readonly part: number;
  readonly body: Buffer;
  /** What the line cost, when it was sold. */
  readonly use?: BatchUse;
}

export interface Room {
  readonly maxFiles: number;
  readonly maxCallerBytes: number;
  readonly maxBytes: number;
}

export type NoRoom = 'files' | 'caller' | 'all';

export interface FilePlace {
  readonly createdMs: number;
  readonly id: string;
}

export interface ListRequest {
  readonly limit: number;
  readonly order: 'asc' | 'desc';
  readonly after: FilePlace | undefined;
  readonly purpose: string | undefined;
}

export interface PartSum {
  readonly lines: number;
  readonly sizeBytes: number;
  readonly use: BatchUse;
}

const PIECES = 256;
/** Bytes that are read at once; a single piece may be larger. */
const READ_BYTES = 256 * 1024;
/** Bytes that one statement deletes: some milliseconds of work. */
const REMOVED_BYTES = 4 * 1024 * 1024;
const EXPIRED_FILES = 100;

export class FileTable {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Begins a file of at most `file.sizeBytes`; nobody sees it yet. `beside` are bytes that the
   * account stores elsewhere, and all accounts. Until it is whole it expires at `file.expiresMs`.
   */
  async begin(
    file: NewFile,
    room: Room,
    beside: { readonly callerBytes: number; readonly allBytes: number },
  ): Promise<NoRoom | undefined> {
    return await this.#store.transaction(async (tx) => {
      await oneAtATime(tx, this.#store.dialect, `batches_file ${file.accountId}`);
      const [own] = await tx.query<{ files: bigint; bytes: bigint }>(
        `SELECT count(*) AS files, ${sum('size_bytes')} AS bytes FROM batches_file
         WHERE account_id = $1`,
        [file.accountId],
      );
      const { sizeBytes } = file;
      if (Number(own?.files ?? 0n) >= room.maxFiles) return 'files';
      const callerBytes = Number(own?.bytes ?? 0n) + beside.callerBytes + sizeBytes;
      if (callerBytes > room.maxCallerBytes) return 'caller';
      const [all] = await tx.query<{ bytes: bigint }>(
        `SELECT ${sum('size_bytes')} AS bytes FROM batches_file`,
      );
      const allBytes = Number(all?.bytes ?? 0n) + beside.allBytes + sizeBytes;
      if (allBytes > room.maxBytes) return 'all';
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

  /** Adds pieces that a crash may take away again: the file is not whole yet. */
  async write(piece: Piece): Promise<void> {
    await this.#store.transaction((tx) => addPieces(tx, [piece]), { durable: false });
  }

  /** The file is whole from here on; `false` when it has expired while it was written. */
  async finish(
    id: string,
    facts: Pick<StoredFile, 'name' | 'purpose' | 'sizeBytes' | 'expiresMs'>,
  ): Promise<boolean> {
    const rows = await this.#store.query(
      `UPDATE batches_file SET state = 'ready', name = $2, purpose = $3, size_bytes = $4,
         expires_ms = $5 WHERE id = $1 AND state = 'writing' RETURNING id`,
      [id, facts.name, facts.purpose, facts.sizeBytes, facts.expiresMs],
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
       WHERE id = $1 AND account_id = $2 AND state = 'ready' AND expires_ms > $3`,
      [id, accountId, nowMs],
    );
    return rows.map(FILE.parse)[0];
  }

  async list(accountId: string, request: ListRequest, nowMs: number): Promise<StoredFile[]> {
    const { limit, order, after, purpose } = request;
    const parameters: (string | number)[] = [accountId, nowMs, limit];
    const add = (value: string | number): string => `$${parameters.push(value)}`;
    const beyond = order === 'asc' ? '>' : '<';
    const wanted = [
      ...(purpose === undefined ? [] : [`AND purpose = ${add(purpose)}`]),
      ...(after === undefined
        ? []
        : [`AND (created_ms, id) ${beyond} (${add(after.createdMs)}, ${add(after.id)})`]),
    ];
    const rows = await this.#store.query(
      `SELECT ${FILE.columns} FROM batches_file
       WHERE account_id = $1 AND state = 'ready' AND expires_ms > $2 ${wanted.join(' ')}
       ORDER BY created_ms ${order}, id ${order} LIMIT $3`,
      parameters,
    );
    return rows.map(FILE.parse);
  }

  /** Takes a file out of sight, inside the transaction that knows that nobody reads it. */
  async hide(tx: Queryable, accountId: string, id: string): Promise<boolean> {
    const rows = await tx.query(
      `UPDATE batches_file SET state = 'deleting', expires_ms = 0
       WHERE id = $1 AND account_id = $2 AND state = 'ready' RETURNING id`,
      [id, accountId],
    );
    return rows.length === 1;
  }

  /** Files that are to be deleted: expired, hidden, or never finished. */
  async expired(nowMs: number): Promise<StoredFile[]> {
    const rows = await this.#store.query(
      `SELECT ${FILE.columns} FROM batches_file WHERE expires_ms <= $1 ORDER BY expires_ms
       LIMIT ${EXPIRED_FILES}`,
      [nowMs],
    );
    return rows.map(FILE.parse);
  }

  /** Deletes the bytes of a file, then the file: a crash in between leaves it to the next sweep. */
  async remove({ id, contentId, part }: Pick<StoredFile, 'id' | 'contentId' | 'part'>) {
    await this.#removePieces(contentId, part);
    await this.#store.query('DELETE FROM batches_file WHERE id = $1', [id]);
  }

  async #removePieces(contentId: string, part: number): Promise<void> {
    for (;;) {
      const upTo = await this.#reach(contentId, part, -1, REMOVED_BYTES);
      if (upTo === undefined) return;
      const sql = 'DELETE FROM batches_piece WHERE content_id = $1 AND part = $2 AND seq <= $3';
      // The file is out of sight: what a crash brings back is deleted by the next sweep.
      await this.#store.transaction((tx) => tx.query(sql, [contentId, part, upTo]), {
        durable: false,
      });
      await nextTurn();
    }
  }

  /** The bytes of one file of a content, in order; a reader that is slow holds a few of them. */
  async *read(contentId: string, part: number): AsyncGenerator<Buffer> {
    let after = -1;
    for (;;) {
      const upTo = await this.#reach(contentId, part, after, READ_BYTES);
      if (upTo === undefined) return;
      const rows = await this.#store.query<{ body: Buffer }>(
        `SELECT body FROM batches_piece
         WHERE content_id = $1 AND part = $2 AND seq > $3 AND seq <= $4 ORDER BY seq`,
        [contentId, part, after, upTo],
      );
      yield Buffer.concat(rows.map(({ body }) => body));
      after = upTo;
      // SQLite reads synchronously.
      await nextTurn();
    }
  }

  /** The last of the pieces after `after` that have `maxBytes` together, or of the next one alone. */
  async #reach(
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
    let upTo: number | undefined;
    let bytes = 0;
    for (const { seq, size_bytes: size } of sizes) {
      bytes += Number(size);
      if (upTo !== undefined && bytes > maxBytes) break;
      upTo = Number(seq);
    }
    return upTo;
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

  /** Keeps a file that is about to be read at least so long. */
  async keepUntil(tx: Queryable, id: string, untilMs: number): Promise<void> {
    await tx.query('UPDATE batches_file SET expires_ms = $2 WHERE id = $1 AND expires_ms < $2', [
      id,
      untilMs,
    ]);
  }

  /** A file whose pieces are there already, inside the transaction that ends its batch. */
  async publish(tx: Queryable, file: NewFile): Promise<void> {
    await insert(tx, file, 'ready');
  }
}

/** Adds the pieces that are not there yet; how many. */
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

async function insert(tx: Queryable, file: NewFile, state: 'writing' | 'ready'): Promise<void> {
  await tx.query(
    `INSERT INTO batches_file (id, account_id, content_id, part, name, purpose, state, size_bytes,
       created_ms, expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
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
