/**
 * Compiles the test contracts with `solc`. `node test/chains/compile.ts` writes the fixture that
 * `anvil.ts` loads; `contracts.test.ts` compiles again and compares.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { sha256Hex } from '../../src/core/ids.ts';

export interface ContractsFixture {
  readonly sourceSha256: string;
  readonly solc: string;
  /** Runtime bytecode by contract name. */
  readonly runtime: Readonly<Record<string, string>>;
}

const SOURCE = new URL('contracts/TestUsdc.sol', import.meta.url);
const FIXTURE = new URL('contracts/contracts.json', import.meta.url);

export function readFixture(): ContractsFixture {
  return JSON.parse(readFileSync(FIXTURE, 'utf8')) as ContractsFixture; // defined below
}

export function sourceHash(): string {
  return sha256Hex(readFileSync(SOURCE));
}

/** Takes about two seconds, mostly for loading the compiler. */
export function compileContracts(): ContractsFixture {
  // The compiler is CommonJS without types.
  const solc = createRequire(import.meta.url)('solc') as {
    version(): string;
    compile(input: string): string;
  };
  const input = {
    language: 'Solidity',
    sources: { 'TestUsdc.sol': { content: readFileSync(SOURCE, 'utf8') } },
    settings: {
      optimizer: { enabled: true, runs: 200 },
      evmVersion: 'paris',
      metadata: { bytecodeHash: 'none', appendCBOR: false },
      outputSelection: { '*': { '*': ['evm.deployedBytecode.object'] } },
    },
  };
  const output = JSON.parse(solc.compile(JSON.stringify(input))) as {
    errors?: { severity: string; formattedMessage: string }[];
    contracts: Record<string, Record<string, { evm: { deployedBytecode: { object: string } } }>>;
  };
  const errors = (output.errors ?? []).filter((error) => error.severity === 'error');
  if (errors.length > 0) throw new Error(errors.map((error) => error.formattedMessage).join('\n'));
  const contracts = Object.entries(output.contracts['TestUsdc.sol'] ?? {});
  return {
    sourceSha256: sourceHash(),
    solc: solc.version(),
    runtime: Object.fromEntries(
      contracts
        .map(([name, { evm }]) => [name, `0x${evm.deployedBytecode.object}`] as const)
        .filter(([, code]) => code.length > 2),
    ),
  };
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(FIXTURE, `${JSON.stringify(compileContracts(), undefined, 1)}\n`);
}
