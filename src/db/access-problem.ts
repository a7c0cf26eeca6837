/** Explains why the process may not access a file: mostly it belongs to another user. */
import { accessSync, constants, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf } from './failures.ts';

/** Returns `undefined` if the file, or the folder in which it would be created, is accessible. */
export function accessProblem(path: string): string | undefined {
  for (const place of [path, dirname(path)]) {
    try {
      accessSync(place, constants.R_OK | constants.W_OK);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'EROFS') return `${place} is on a file system that is read-only`;
      // A missing file is created in its folder.
      if (code === 'EACCES' || code === 'EPERM') return foreign(place);
    }
  }
  return undefined;
}

function foreign(place: string): string {
  const owner = ownerOf(place);
  const own = process.getuid?.();
  if (owner === undefined || owner === own) return `this user may not write ${place}`;
  return `${place} belongs to the user ${owner}, and this is the user ${own}: run the command as that user, or make this one the owner`;
}

/** Returns the user id of the owner, or that of the nearest accessible parent folder. */
function ownerOf(place: string): number | undefined {
  try {
    return statSync(place, { throwIfNoEntry: false })?.uid;
  } catch {
    // The folder is closed to this user.
    const parent = dirname(place);
    return parent === place ? undefined : ownerOf(parent);
  }
}
