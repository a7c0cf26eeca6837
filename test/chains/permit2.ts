/**
 * The creation code of Permit2 and of the proxy of the x402 scheme `upto`. Their addresses are
 * CREATE2 addresses of deployer, salt and code, which proves the code.
 */
import { readFileSync } from 'node:fs';
import type { Hex } from 'viem';

interface Deployed {
  readonly address: Hex;
  /** Source and license of the contract. */
  readonly source: string;
  readonly salt: Hex;
  readonly initCode: Hex;
}

export interface Permit2Fixture {
  /** Deployer that chains and anvil have at this address. */
  readonly deployer: Hex;
  readonly contracts: Readonly<Record<'permit2' | 'uptoProxy', Deployed>>;
}

const FIXTURE = new URL('contracts/permit2.json', import.meta.url);

export function readPermit2Fixture(): Permit2Fixture {
  return JSON.parse(readFileSync(FIXTURE, 'utf8')) as Permit2Fixture; // a file of this folder
}
