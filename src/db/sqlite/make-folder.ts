/**
 * Makes the folder of a database with those above it. Node's own recursive `mkdir` never returns
 * where a file system refuses a new folder as if its parent were missing, as `/proc` does.
 */
import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { reasonOf } from '../../core/log.ts';

/** Throws an error that names the folder. */
export function makeFolder(path: string): void {
  if (isFolder(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeFolder(parent);
  try {
    mkdirSync(path);
  } catch (error) {
    // Another process made it in this moment.
    if (isFolder(path)) return;
    throw new Error(`The folder ${path} cannot be made: ${reasonOf(error)}`, { cause: error });
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
