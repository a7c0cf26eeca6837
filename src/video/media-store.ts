/**
 * Files of video jobs in the data folder: what callers gave (`inputs/<job>/`) and what came out
 * (`results/<job>`). Names are made of job ids only, never of foreign text. Several processes on
 * several machines share the work only when they share this folder.
 */
import { existsSync, readdirSync } from 'node:fs';
import { copyFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { JobInput } from './job.ts';

/** A media file that a caller gave; it is moved into the store. */
export interface GivenInput {
  readonly role: string;
  readonly path: string;
  readonly mimeType: string;
}

/** The media of a job that it was given (a folder), or a result, by its own name. */
export interface StoredFile {
  readonly kind: 'inputs' | 'results';
  readonly name: string;
}

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

  /** Lets `write` fill a file of its own, which becomes the result in one step when it says so. */
  async storeResult(
    jobId: string,
    owner: string,
    write: (path: string) => Promise<boolean>,
  ): Promise<number> {
    await mkdir(join(this.#folder, 'results'), { recursive: true });
    const part = `${this.resultPath(jobId)}.${owner}.part`;
    try {
      if (!(await write(part))) return 0;
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

  /** Everything that lies here, for a check against the table. */
  async files(): Promise<StoredFile[]> {
    const inputs = await namesIn(join(this.#folder, 'inputs'), 'inputs');
    return [...inputs, ...(await namesIn(join(this.#folder, 'results'), 'results'))];
  }

  /** The names of everything that lies here in this moment, before this process adds to it. */
  namesNow(): ReadonlySet<string> {
    const folders = ['inputs', 'results'].map((kind) => join(this.#folder, kind));
    return new Set(
      folders.filter((folder) => existsSync(folder)).flatMap((one) => readdirSync(one)),
    );
  }

  /** Whether a file of nobody is so old that its job will not be written any more. */
  async isLeft({ kind, name }: StoredFile, beforeMs: number): Promise<boolean> {
    const facts = await stat(join(this.#folder, kind, name)).catch(() => undefined);
    return facts !== undefined && facts.mtimeMs < beforeMs;
  }

  /** Deletes a file of `files`. */
  async remove({ kind, name }: StoredFile): Promise<void> {
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

async function namesIn(folder: string, kind: StoredFile['kind']): Promise<StoredFile[]> {
  // A folder that is not there holds nothing.
  const names = await readdir(folder).catch(() => []);
  return names.map((name) => ({ kind, name }));
}
