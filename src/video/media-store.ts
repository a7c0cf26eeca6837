/**
 * Files of video jobs in the data folder: inputs (`inputs/<job>/`) and results (`results/<job>`).
 * Names contain only job ids, never user input. Processes on several machines must share this
 * folder.
 */
import { existsSync, readdirSync } from 'node:fs';
import { copyFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { flushFile, flushNames } from '../core/flush.ts';
import type { EngineInput } from '../engines/media/media.ts';
import type { JobInput } from './job.ts';

/** Input folders, one per job, and result files. */
const KINDS = ['inputs', 'results'] as const;
type Kind = (typeof KINDS)[number];

export interface StoredFile {
  readonly kind: Kind;
  readonly name: string;
}

export class MediaStore {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  pathOf(kind: Kind, name: string): string {
    return join(this.#folder, kind, name);
  }

  async adopt(
    jobId: string,
    given: readonly EngineInput[],
  ): Promise<{ inputs: JobInput[]; sizeBytes: number }> {
    const inputs: JobInput[] = [];
    let sizeBytes = 0;
    if (given.length > 0) await mkdir(this.pathOf('inputs', jobId), { recursive: true });
    for (const [index, { role, path, mimeType }] of given.entries()) {
      const file = `${jobId}/${index}`;
      const to = this.pathOf('inputs', file);
      await move(path, to);
      await flushFile(to);
      sizeBytes += (await stat(to)).size;
      inputs.push({ role, file, mimeType });
    }
    if (given.length > 0) {
      await flushNames(this.pathOf('inputs', jobId));
      await flushNames(join(this.#folder, 'inputs'));
    }
    return { inputs, sizeBytes };
  }

  /**
   * `write` fills a temporary file, which becomes the result atomically if it returns true. The
   * result then outlasts a loss of power, because its job is charged next.
   */
  async storeResult(
    jobId: string,
    owner: string,
    write: (path: string) => Promise<boolean>,
  ): Promise<number> {
    await mkdir(join(this.#folder, 'results'), { recursive: true });
    const result = this.pathOf('results', jobId);
    const part = `${result}.${owner}.part`;
    try {
      if (!(await write(part))) return 0;
      const { size } = await stat(part);
      await flushFile(part);
      await rename(part, result);
      await flushNames(join(this.#folder, 'results'));
      return size;
    } finally {
      await rm(part, { force: true });
    }
  }

  async remove(kind: Kind, name: string): Promise<void> {
    await rm(this.pathOf(kind, name), { recursive: true, force: true });
  }

  async files(): Promise<StoredFile[]> {
    const found: StoredFile[] = [];
    for (const kind of KINDS) {
      // The folder may not exist yet.
      const names = await readdir(join(this.#folder, kind)).catch(() => []);
      found.push(...names.map((name) => ({ kind, name })));
    }
    return found;
  }

  namesNow(): ReadonlySet<string> {
    const folders = KINDS.map((kind) => join(this.#folder, kind));
    return new Set(
      folders.filter((folder) => existsSync(folder)).flatMap((one) => readdirSync(one)),
    );
  }

  /** Whether a file without a job is so old that no job will be written for it. */
  async isLeft({ kind, name }: StoredFile, beforeMs: number): Promise<boolean> {
    const facts = await stat(this.pathOf(kind, name)).catch(() => undefined);
    return facts !== undefined && facts.mtimeMs < beforeMs;
  }
}

async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch {
    // EXDEV: the temporary folder is on another disk.
    await copyFile(from, to);
    await rm(from, { force: true });
  }
}
