/** Lets a test import the packages of an engine. */
import { resolveFrom } from '../../engines/server/packages.ts';
import {
  type EngineSet,
  fetchedPackages,
  missingPackages,
} from '../../src/engines/embedded/packages.ts';

export function useEnginePackages(name: EngineSet): void {
  const packages = fetchedPackages(name, undefined);
  if (packages === undefined) throw new Error(missingPackages(name));
  resolveFrom(packages);
}
