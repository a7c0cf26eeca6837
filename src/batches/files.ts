/**
 * `POST /files`, `GET /files`, `GET /files/{id}`, `GET /files/{id}/content`, `DELETE /files/{id}`:
 * input files and results of batches. Files are streamed in both directions, never read into memory.
 */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { BatchesSection } from '../config/config.ts';
import { type Clock, DAY_MS, HOUR_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import { type StreamedFile, streamFile } from '../http/multipart.ts';
import { checked, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { STREAMED_FORM_BODY, type Route, get, remove } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import { seconds } from './batch.ts';
import type { BatchTable } from './batch-table.ts';
import * as DESCRIPTIONS from './describe.ts';
import type { FileTable, StorageLimit, StoredFile } from './file-table.ts';
import { FilesQuery, UploadFields, pageOf } from './schema.ts';

export interface FilesParts {
  readonly files: FileTable;
  readonly batches: BatchTable;
  readonly settings: BatchesSection;
  /** Throws 402 for a caller that must have credit before it may store files. */
  readonly requireCredit: (caller: Caller) => Promise<void>;
  readonly clock: Clock;
  readonly ids: Ids;
}

const MB = 1_000_000;
const PIECE_BYTES = 256 * 1024;
/** Time after which an incomplete upload is deleted. */
const UPLOAD_MS = HOUR_MS;
const MAX_NAME_CHARS = 255;
const FULL_RETRY_SECONDS = 60;

export function fileRoutes(parts: FilesParts): Route[] {
  const auth = 'key-or-wallet';
  return [
    {
      method: 'POST',
      path: '/files',
      auth,
      body: STREAMED_FORM_BODY,
      describe: DESCRIPTIONS.UPLOAD_FILE,
      handle: (context) => upload(parts, context),
    },
    get('/files', auth, DESCRIPTIONS.LIST_FILES, (context) => list(parts, context)),
    get('/files/:id', auth, DESCRIPTIONS.READ_FILE, async (context) => {
      await context.json(200, fileBody(await fileOf(parts, context)));
    }),
    get('/files/:id/content', auth, DESCRIPTIONS.FILE_CONTENT, (context) => send(parts, context)),
    remove('/files/:id', auth, DESCRIPTIONS.DELETE_FILE, (context) => removeFile(parts, context)),
  ];
}

async function upload(parts: FilesParts, context: RequestContext): Promise<void> {
  const { files, settings, clock, ids } = parts;
  await parts.requireCredit(context.caller);
  const maxBytes = settings.maxFileMb * MB;
  const id = `file-${ids.hex(12)}`;
  const createdMs = clock.nowMs();
  const content = { id, contentId: id, part: 0 };
  await begin(parts, context, {
    ...content,
    name: '',
    purpose: 'batch',
    // The length includes the form, so it is never less than the length of the file.
    sizeBytes: Math.min(Number(context.headers['content-length'] ?? maxBytes), maxBytes),
    createdMs,
    expiresMs: createdMs + UPLOAD_MS,
  });
  try {
    const pieces = new Pieces(files, id);
    const form = await streamFile(context, 'file', maxBytes, (bytes) => pieces.add(bytes));
    await pieces.end();
    const fields = fieldsOf(form);
    const keepMs = (fields.expires_after?.seconds ?? Infinity) * SECOND_MS;
    const facts = {
      name: form.fileName.slice(0, MAX_NAME_CHARS) || 'upload',
      purpose: fields.purpose,
      sizeBytes: pieces.sizeBytes,
      expiresMs: createdMs + Math.min(keepMs, settings.keepDays * DAY_MS),
    };
    if (!(await files.finish(id, facts, clock.nowMs()))) throw new Fault('REQUEST_TOO_SLOW');
    await context.json(200, fileBody({ ...content, ...facts, createdMs }));
  } catch (error) {
    // If the database is unreachable, the sweep deletes the upload when it has expired.
    await files.remove(content).catch(() => undefined);
    throw error;
  }
}

async function begin(
  { files, batches, settings }: FilesParts,
  { caller }: RequestContext,
  file: StoredFile,
): Promise<void> {
  const { accountId } = caller;
  const limits = {
    maxFiles: settings.maxFiles,
    maxCallerBytes: settings.maxStoredMbPerCaller * MB,
    maxBytes: settings.maxStoredMb * MB,
  };
  const beside = await batches.resultBytes(accountId);
  const exceeded = await files.begin({ ...file, accountId }, limits, beside);
  if (exceeded !== undefined) throw storageFull(exceeded, settings);
}

function storageFull(
  limit: StorageLimit,
  { maxFiles, maxStoredMbPerCaller }: BatchesSection,
): Fault {
  if (limit === 'all') {
    return new Fault('SERVICE_UNAVAILABLE', {
      message: 'The storage of the server is full',
      retryAfterSeconds: FULL_RETRY_SECONDS,
    });
  }
  const most =
    limit === 'files' ? `${maxFiles} files` : `${maxStoredMbPerCaller} MB of files and results`;
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `At most ${most} may be stored: delete files with DELETE /files/{id}`,
    retryAfterSeconds: FULL_RETRY_SECONDS,
  });
}

/** `expires_after[seconds]` is a member of `expires_after`. */
function fieldsOf({ fields }: StreamedFile): UploadFields {
  const given: Record<string, unknown> = {};
  const expires: Record<string, string> = {};
  for (const [name, value] of fields) {
    const member = /^expires_after\[(\w+)\]$/.exec(name)?.[1];
    if (member === undefined) given[name] = value;
    else expires[member] = value;
  }
  if (Object.keys(expires).length > 0) given['expires_after'] = expires;
  return checked(UploadFields, given);
}

/** Stores an upload in pieces of one size. */
class Pieces {
  readonly #files: FileTable;
  readonly #contentId: string;
  readonly #waiting = Buffer.allocUnsafe(PIECE_BYTES);
  #waitingBytes = 0;
  #seq = 0;
  sizeBytes = 0;

  constructor(files: FileTable, contentId: string) {
    this.#files = files;
    this.#contentId = contentId;
  }

  async add(bytes: Buffer): Promise<void> {
    let at = 0;
    while (at < bytes.length) {
      const taken = bytes.copy(this.#waiting, this.#waitingBytes, at);
      at += taken;
      this.#waitingBytes += taken;
      if (this.#waitingBytes === PIECE_BYTES) await this.end();
    }
  }

  async end(): Promise<void> {
    if (this.#waitingBytes === 0) return;
    const body = this.#waiting.subarray(0, this.#waitingBytes);
    await this.#files.write({ contentId: this.#contentId, seq: this.#seq, part: 0, body });
    this.#waitingBytes = 0;
    this.#seq += 1;
    this.sizeBytes += body.length;
  }
}

/** Throws `FILE_NOT_FOUND` (404) for a file that is unknown, expired or of another account. */
async function fileOf(
  { files, clock }: FilesParts,
  { caller, parameters }: RequestContext,
  id = parameters['id'] ?? '',
): Promise<StoredFile> {
  const file = await files.find(caller.accountId, id, clock.nowMs());
  if (file !== undefined) return file;
  throw new Fault('FILE_NOT_FOUND');
}

async function list(parts: FilesParts, context: RequestContext): Promise<void> {
  const { limit, order, after: afterId, purpose } = readQuery(context, FilesQuery);
  const after = afterId === undefined ? undefined : await fileOf(parts, context, afterId);
  const page = { limit: limit + 1, order, after, purpose };
  const found = await parts.files.list(context.caller.accountId, page, parts.clock.nowMs());
  await context.json(200, pageOf(found.map(fileBody), limit));
}

/** A slow reader uses the memory of a few pieces, and is disconnected after `http.writeTimeoutSeconds`. */
async function send(parts: FilesParts, context: RequestContext): Promise<void> {
  const { contentId, part, sizeBytes } = await fileOf(parts, context);
  context.set('content-length', sizeBytes);
  context.set('cache-control', 'private, no-store');
  const writable = context.pipe(200, 'application/octet-stream');
  if (context.request.method === 'HEAD') return void writable.end();
  try {
    const content = requireAll(parts.files.read(contentId, part), sizeBytes);
    await pipeline(Readable.from(content), writable);
  } catch (error) {
    if (!context.signal.aborted && !(error instanceof DeletedError)) throw error;
  }
}

class DeletedError extends Error {}

/** Fails if the file was deleted meanwhile, because a response that is too short would never end. */
async function* requireAll(
  content: AsyncIterable<Buffer>,
  sizeBytes: number,
): AsyncGenerator<Buffer> {
  let left = sizeBytes;
  for await (const bytes of content) {
    left -= bytes.length;
    yield bytes;
  }
  if (left > 0) throw new DeletedError();
}

async function removeFile(parts: FilesParts, context: RequestContext): Promise<void> {
  const { files, batches } = parts;
  const file = await fileOf(parts, context);
  const { accountId } = context.caller;
  const isHidden = await batches.alone(accountId, async (tx) => {
    if (await batches.reads(tx, file.id)) throw new Fault('FILE_IN_USE');
    return await files.hide(tx, accountId, file.id);
  });
  // Another request has deleted the file.
  if (!isHidden) throw new Fault('FILE_NOT_FOUND');
  await files.remove(file);
  await context.json(200, { id: file.id, object: 'file', deleted: true });
}

function fileBody(file: StoredFile) {
  return {
    id: file.id,
    object: 'file' as const,
    bytes: file.sizeBytes,
    created_at: seconds(file.createdMs),
    expires_at: seconds(file.expiresMs),
    filename: file.name,
    purpose: file.purpose,
    status: 'processed' as const,
  };
}
