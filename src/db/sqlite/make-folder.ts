/**
 * Creates the folder of a database and its parents. Node's recursive `mkdir` never returns on file
 * systems that report a missing parent for every new folder, as `/proc` does.
 */
import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { reasonOf } from '../../core/log.ts';

export function makeFolder(path: string): void {
  if (isFolder(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeFolder(parent);
  try {
    mkdirSync(path);
  } catch (error) {
    // Another process created it meanwhile.
    if (isFolder(path)) return;
    throw new Error(`The folder ${path} cannot be created: ${reasonOf(error)}`, { cause: error });
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
