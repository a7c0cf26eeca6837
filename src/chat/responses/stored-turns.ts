/**
 * Stores the responses that callers continue or read by id. A turn is written in the transaction of
 * its charge and expires `responses.keepHours` after its conversation was last continued, by the
 * clock of the database.
 *
 * Unknown, expired and foreign ids are all reported as not found.
 */
import { type Clock, HOUR_MS } from '../../core/clock.ts';
import { nextTurn } from '../../core/event-loop.ts';
import { Fault } from '../../core/faults.ts';
import { type Queryable, type Store, deleteInBatches } from '../../db/db.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { jsonObjects, parsedJsonObject } from '../../json/json-text.ts';

const MAX_CHAIN_TURNS = 100;
const MAX_REFERENCED_TURNS = 1_000;
/** The default limit of a request body. */
const MAX_CHAIN_BYTES = 35 * 1024 * 1024;
/** Conversations up to this size are read and parsed in one step. */
const READ_BYTES = 1024 * 1024;
export const MAX_TURN_BYTES = 1024 * 1024;
/** An account above this limit stores no further turns until some expire. */
const MAX_ACCOUNT_BYTES = 256 * 1024 * 1024;
/**
 * How long a measured capacity is cached; what an account can pay for in this time is a small
 * excess.
 */
const CAPACITY_CACHED_MS = 10_000;
const MAX_CAPACITIES = 1_000;
const PRUNE_ROWS = 1_000;
/** Most extensions of a turn within the time that a turn is kept. */
const EXTENSIONS_OF_LOOP = 8;

export interface StoredTurn {
  readonly id: string;
  readonly input: readonly JsonObject[];
  readonly response: JsonObject;
}

export interface NewTurn {
  readonly id: string;
  readonly accountId: string;
  readonly parentId: string | undefined;
  readonly createdMs: number;
  readonly model: string;
  readonly status: string;
  readonly costNano: bigint;
  readonly inputJson: string;
  readonly responseJson: string;
}

interface TurnRow {
  readonly id: string;
  readonly parent_id: string;
  readonly input_json: string;
  readonly response_json: string;
}

interface SizedRow extends TurnRow {
  readonly size_bytes: bigint;
}

interface StoredTurnsParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly keepHours: () => number;
}

export class StoredTurns {
  readonly #parts: StoredTurnsParts;
  /** Capacity by account, least recently measured first; measuring sums all rows of the account. */
  readonly #capacities = new Map<
    string,
    { readonly hasCapacity: boolean; readonly untilMs: number }
  >();

  constructor(parts: StoredTurnsParts) {
    this.#parts = parts;
  }

  async hasCapacity(accountId: string): Promise<boolean> {
    if (this.#keepMs() === 0) return false;
    const { clock } = this.#parts;
    const known = this.#capacities.get(accountId);
    if (known !== undefined && clock.monotonicMs() < known.untilMs) return known.hasCapacity;
    const [row] = await this.#parts.store.query<{ readonly total: bigint | null }>(
      'SELECT CAST(SUM(size_bytes) AS BIGINT) AS total FROM responses_turn WHERE account_id = $1',
      [accountId],
    );
    const hasCapacity = Number(row?.total ?? 0) < MAX_ACCOUNT_BYTES;
    this.#capacities.delete(accountId);
    this.#capacities.set(accountId, {
      hasCapacity,
      untilMs: clock.monotonicMs() + CAPACITY_CACHED_MS,
    });
    const [oldest = ''] = this.#capacities.keys();
    if (this.#capacities.size > MAX_CAPACITIES) this.#capacities.delete(oldest);
    return hasCapacity;
  }

  /** Stores a turn in the transaction of its charge and extends the expiry of its conversation. */
  async add(tx: Queryable, turn: NewTurn): Promise<void> {
    const keepMs = this.#keepMs();
    const { id, accountId, parentId = '', createdMs, model, status, costNano } = turn;
    const { inputJson, responseJson } = turn;
    const sizeBytes = Buffer.byteLength(inputJson) + Buffer.byteLength(responseJson);
    await tx.query(
      `INSERT INTO responses_turn (id, account_id, parent_id, created_ms, expires_ms, model_id,
         status, size_bytes, cost_nano, input_json, response_json)
       VALUES ($1, $2, $3, $4, now_ms($4) + $5, $6, $7, $8, $9, $10, $11)`,
      [
        id,
        accountId,
        parentId,
        createdMs,
        keepMs,
        model,
        status,
        sizeBytes,
        costNano,
        inputJson,
        responseJson,
      ],
    );
    if (parentId === '') return;
    // A tool loop writes a turn with every request, so most requests extend nothing: an extension
    // lasts longer than this turn.
    const longerMs = keepMs + Math.floor(keepMs / EXTENSIONS_OF_LOOP);
    await tx.query(
      `WITH RECURSIVE ${CHAIN}
       UPDATE responses_turn SET expires_ms = now_ms($3) + $4
       WHERE id IN (SELECT id FROM chain) AND expires_ms < now_ms($3) + $5`,
      [parentId, accountId, createdMs, longerMs, keepMs],
    );
  }

  /**
   * Returns the conversation that ends with a turn, oldest first. Throws
   * `PREVIOUS_RESPONSE_NOT_FOUND` if any turn is missing, because the model would not notice the
   * gap.
   */
  async chain(id: string, accountId: string): Promise<StoredTurn[]> {
    // A long conversation is read in pieces; one above the limit is rejected by its size alone.
    const rows = await this.#parts.store.query<SizedRow>(
      `WITH RECURSIVE ${CHAIN}, size (fits) AS (
         SELECT COALESCE(SUM(size_bytes), 0) <= ${READ_BYTES} FROM chain)
       SELECT t.id, t.parent_id, t.size_bytes,
         CASE WHEN size.fits THEN t.input_json ELSE '' END AS input_json,
         CASE WHEN size.fits THEN t.response_json ELSE '' END AS response_json
       FROM chain c JOIN responses_turn t ON t.id = c.id CROSS JOIN size
       WHERE t.expires_ms >= now_ms($3) ORDER BY c.depth DESC`,
      [id, accountId, this.#parts.clock.nowMs()],
    );
    const isThere = rows.at(-1)?.id === id;
    const parentId = rows[0]?.parent_id;
    if (!isThere || parentId === undefined) throw notFound(id);
    if (parentId !== '') {
      throw rows.length < MAX_CHAIN_TURNS
        ? notFound(parentId)
        : tooLong(`has more than ${MAX_CHAIN_TURNS} turns`);
    }
    const sizeBytes = rows.reduce((sum, row) => sum + Number(row.size_bytes), 0);
    if (sizeBytes > MAX_CHAIN_BYTES) throw tooLong('is too large');
    if (rows[0]?.input_json !== '') return rows.map(turnOf);
    return await this.#readInPieces(rows, accountId);
  }

  /** SQLite queries run on the event loop, so other requests get a turn between the pieces. */
  async #readInPieces(rows: readonly SizedRow[], accountId: string): Promise<StoredTurn[]> {
    const turns: StoredTurn[] = [];
    let piece: string[] = [];
    let pieceBytes = 0;
    for (const [at, { id, size_bytes: sizeBytes }] of rows.entries()) {
      piece.push(id);
      pieceBytes += Number(sizeBytes);
      const nextBytes = Number(rows[at + 1]?.size_bytes ?? READ_BYTES);
      if (pieceBytes + nextBytes < READ_BYTES) continue;
      await nextTurn();
      const found = await this.#parts.store.query<TurnRow>(
        `SELECT id, parent_id, input_json, response_json FROM responses_turn
         WHERE account_id = $1 AND expires_ms >= now_ms($2)
         AND id IN (${piece.map((_id, place) => `$${place + 3}`).join(', ')})`,
        [accountId, this.#parts.clock.nowMs(), ...piece],
      );
      for (const one of piece) {
        const row = found.find((some) => some.id === one);
        if (row === undefined) throw notFound(one);
        turns.push(turnOf(row));
      }
      piece = [];
      pieceBytes = 0;
    }
    return turns;
  }

  /**
   * Returns those of the turns that exist. Throws 400 if they exceed the count or size of one
   * request.
   */
  async some(ids: readonly string[], accountId: string): Promise<ReadonlyMap<string, StoredTurn>> {
    if (ids.length > MAX_REFERENCED_TURNS) {
      throw tooManyReferences(`to more than ${MAX_REFERENCED_TURNS} responses`);
    }
    const found = new Map<string, StoredTurn>();
    let leftBytes = MAX_CHAIN_BYTES;
    for (const id of ids) {
      const [size] = await this.#parts.store.query<{ readonly size_bytes: bigint }>(
        'SELECT size_bytes FROM responses_turn WHERE id = $1 AND account_id = $2',
        [id, accountId],
      );
      if (size === undefined) continue;
      leftBytes -= Number(size.size_bytes);
      if (leftBytes < 0) throw tooManyReferences('to responses that are too large together');
      const turn = await this.get(id, accountId);
      if (turn !== undefined) found.set(id, turn);
    }
    return found;
  }

  async get(id: string, accountId: string): Promise<StoredTurn | undefined> {
    const [row] = await this.#parts.store.query<TurnRow>(
      `SELECT id, parent_id, input_json, response_json FROM responses_turn
       WHERE id = $1 AND account_id = $2 AND expires_ms >= now_ms($3)`,
      [id, accountId, this.#parts.clock.nowMs()],
    );
    return row && turnOf(row);
  }

  async remove(id: string, accountId: string): Promise<boolean> {
    const rows = await this.#parts.store.query(
      `DELETE FROM responses_turn WHERE id = $1 AND account_id = $2 AND expires_ms >= now_ms($3)
       RETURNING id`,
      [id, accountId, this.#parts.clock.nowMs()],
    );
    return rows.length > 0;
  }

  /** Deletes expired turns in batches. */
  async prune(): Promise<void> {
    const { store, clock } = this.#parts;
    await deleteInBatches(PRUNE_ROWS, () =>
      store.query(
        `DELETE FROM responses_turn WHERE id IN
           (SELECT id FROM responses_turn WHERE expires_ms < now_ms($1) ORDER BY expires_ms LIMIT $2)
         RETURNING id`,
        [clock.nowMs(), PRUNE_ROWS],
      ),
    );
  }

  #keepMs(): number {
    return this.#parts.keepHours() * HOUR_MS;
  }
}

/** The turns from `$1` of account `$2` back to the first of their conversation. */
const CHAIN = `chain (id, parent_id, size_bytes, depth) AS (
  SELECT id, parent_id, size_bytes, 1 FROM responses_turn WHERE id = $1 AND account_id = $2
  UNION ALL
  SELECT t.id, t.parent_id, t.size_bytes, chain.depth + 1 FROM chain
  JOIN responses_turn t ON t.id = chain.parent_id AND t.account_id = $2
  WHERE chain.depth < ${MAX_CHAIN_TURNS}
)`;

function turnOf({ id, input_json, response_json }: TurnRow): StoredTurn {
  const input = jsonObjects(JSON.parse(input_json));
  return { id, input, response: parsedJsonObject(response_json) ?? {} };
}

function notFound(id: string): Fault {
  return new Fault('PREVIOUS_RESPONSE_NOT_FOUND', {
    message: `The response ${id.slice(0, 100)} is not stored for this account or has expired; send the whole conversation as input`,
    fields: { issues: [{ code: 'custom', path: ['previous_response_id'], message: 'Not found' }] },
  });
}

function tooLong(why: string): Fault {
  return new Fault('PREVIOUS_RESPONSE_NOT_FOUND', {
    message: `The conversation of previous_response_id ${why}; send the relevant messages as input`,
  });
}

function tooManyReferences(why: string): Fault {
  return new Fault('INVALID_REQUEST', {
    message: `The input has references ${why}; send those items themselves, or previous_response_id`,
    fields: { issues: [{ code: 'custom', path: ['input'], message: 'Too many references' }] },
  });
}
