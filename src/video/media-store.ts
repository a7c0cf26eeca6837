/**
 * Files of video jobs in the data folder: what callers gave (`inputs/<job>/`) and what came out
 * (`results/<job>`). Names are made of job ids only, never of foreign text. Several processes on
 * several machines share the work only when they share this folder.
 */
import { copyFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { JobInput } from './job.ts';

/** A media file that a caller gave; it is moved into the store. */
export interface GivenInput {
  readonly role: string;
  readonly path: string;
  readonly mimeType: string;
}

/** A file that nobody claims is left alone this long: its job may be about to be written. */
const ORPHAN_AGE_MS = 3_600_000;

export class MediaStore {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Moves the media of a new job into the store. */
  async adopt(
    jobId: string,
    given: readonly GivenInput[],
  ): Promise<{ inputs: JobInput[]; sizeBytes: number }> {
    const inputs: JobInput[] = [];
    let sizeBytes = 0;
    if (given.length > 0) await mkdir(this.#inputs(jobId), { recursive: true });
    for (const [index, { role, path, mimeType }] of given.entries()) {
      const file = `${jobId}/${index}`;
      await move(path, this.inputPath(file));
      sizeBytes += (await stat(this.inputPath(file))).size;
      inputs.push({ role, file, mimeType });
    }
    return { inputs, sizeBytes };
  }

  /** Where the media of an input lies. */
  inputPath(file: string): string {
    return join(this.#folder, 'inputs', file);
  }

  async removeInputs(jobId: string): Promise<void> {
    await rm(this.#inputs(jobId), { recursive: true, force: true });
  }

  /** Where the result of a job lies, whether or not it is there. */
  resultPath(jobId: string): string {
    return join(this.#folder, 'results', jobId);
  }

  /** Lets `write` fill a file of its own, then makes it the result in one step. */
  async storeResult(
    jobId: string,
    owner: string,
    write: (path: string) => Promise<void>,
  ): Promise<number> {
    await mkdir(join(this.#folder, 'results'), { recursive: true });
    const part = `${this.resultPath(jobId)}.${owner}.part`;
    try {
      await write(part);
      const { size } = await stat(part);
      await rename(part, this.resultPath(jobId));
      return size;
    } finally {
      await rm(part, { force: true });
    }
  }

  async removeResult(jobId: string): Promise<void> {
    await rm(this.resultPath(jobId), { force: true });
  }

  /** Job ids of files older than `ORPHAN_AGE_MS`, for a check against the table. */
  async oldFiles(nowMs: number): Promise<{ inputs: string[]; results: string[] }> {
    return {
      inputs: await oldNames(join(this.#folder, 'inputs'), nowMs),
      results: await oldNames(join(this.#folder, 'results'), nowMs),
    };
  }

  /** Deletes a file of `oldFiles` under its own name. */
  async removeNamed(kind: 'inputs' | 'results', name: string): Promise<void> {
    await rm(join(this.#folder, kind, name), { recursive: true, force: true });
  }

  #inputs(jobId: string): string {
    return join(this.#folder, 'inputs', jobId);
  }
}

/** Renames, or copies where the two places are on different disks. */
async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch {
    // EXDEV: the temporary folder is on another disk.
    await copyFile(from, to);
    await rm(from, { force: true });
  }
}

async function oldNames(folder: string, nowMs: number): Promise<string[]> {
  // A folder that is not there holds nothing.
  const names = await readdir(folder).catch(() => []);
  const old: string[] = [];
  for (const name of names) {
    const facts = await stat(join(folder, name)).catch(() => undefined);
    if (facts !== undefined && facts.mtimeMs < nowMs - ORPHAN_AGE_MS) old.push(name);
  }
  return old;
}
