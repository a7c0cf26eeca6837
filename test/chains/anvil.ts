/**
 * A private Base, or another EVM chain: anvil's native binary with the chain id, a USDC-like token at the real
 * USDC address and Multicall3 at its address, so that unmodified clients work. Each transaction is mined
 * immediately unless a test disables it.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import {
  concatHex,
  createTestClient,
  encodeAbiParameters,
  encodeFunctionData,
  http,
  keccak256,
  numberToHex,
  pad,
  parseAbi,
  parseSignature,
  publicActions,
  walletActions,
} from 'viem';
import type { Hex } from 'viem';
import { readFixture } from './compile.ts';
import { readPermit2Fixture } from './permit2.ts';
import { endWithUs } from '../support/end-with-us.ts';

/** Importing all chains of `viem/chains` would load 900 modules. */
export const BASE_CHAIN = {
  id: 8453,
  name: 'Base',
  nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [] } },
} as const;
export const USDC: Hex = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
export const MULTICALL: Hex = '0xcA11bde05977b3631167028862bE2a173976CA11';
export const STAKING: Hex = '0x5747a6e000000000000000000000000000000001';
export const USDC_ABI = parseAbi([
  'function balanceOf(address) view returns (uint256)',
  'function mint(address to, uint256 value)',
  'function approve(address spender, uint256 value) returns (bool)',
  'function allowance(address owner, address spender) view returns (uint256)',
  'function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s)',
  'function transfer(address to, uint256 value) returns (bool)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'event Transfer(address indexed from, address indexed to, uint256 value)',
]);
/** The first funded account of anvil, which signs for it. */
const RICH: Hex = '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266';
const TOKEN_CALL_GAS = 500_000n;
const DEPLOY_GAS = 5_000_000n;
const START_TIMEOUT_MS = 60_000;

function openClient(rpcUrl: string) {
  return createTestClient({
    mode: 'anvil',
    chain: BASE_CHAIN,
    transport: http(rpcUrl),
    pollingInterval: 20,
  })
    .extend(publicActions)
    .extend(walletActions);
}

export interface AnvilChain {
  readonly rpcUrl: string;
  readonly client: ReturnType<typeof openClient>;
  /** Mints USDC, in base units. */
  mint(to: Hex, units: bigint): Promise<void>;
  balance(owner: Hex): Promise<bigint>;
  /** Sets the USDC balance of an address, outside of any block. */
  setTokens(owner: Hex, units: bigint): Promise<void>;
  /** Replaces the latest blocks by empty ones, or by ones with these raw transactions. */
  reorg(depth: number, transactions?: readonly (readonly [Hex, number])[]): Promise<void>;
  /** Gives an address ETH, in wei. */
  fund(address: Hex, wei: bigint): Promise<void>;
  /** Deploys a contract wallet with that owner at an address. */
  placeWallet(address: Hex, owner: Hex): Promise<void>;
  /** Deploys Permit2 and the proxy of the scheme `upto` at their usual addresses. */
  deployPermit2(): Promise<void>;
  /** Sets the USDC allowance of Permit2 for an address; 0 removes it. */
  approvePermit2(owner: Hex, units: bigint): Promise<void>;
  /** Returns the USDC allowance of Permit2 for an address. */
  approved(owner: Hex): Promise<bigint>;
  /** Submits a signed approval (EIP-2612) to the token, from another account. */
  permit(owner: Hex, spender: Hex, signed: Readonly<Record<string, string>>): Promise<void>;
  /** Calls a contract from any address, which receives ETH for it. */
  callAs(from: Hex, to: Hex, data: Hex): Promise<void>;
  /** Calls a token function from a funded account and waits for its block. */
  callToken(
    functionName: 'mint' | 'transferWithAuthorization' | 'cancelAuthorization' | 'permit',
    args: readonly unknown[],
  ): Promise<Hex>;
  stop(): Promise<void>;
}

/** Returns the path of the native binary, from the packages or `PATH`, or the reason why there is none. */
export function anvilBinary(): { path: string } | { missing: string } {
  const arch = process.arch === 'x64' ? 'amd64' : process.arch;
  const platform = process.platform === 'win32' ? 'win32' : process.platform;
  const name = `@foundry-rs/anvil-${platform}-${arch}`;
  try {
    return { path: createRequire(import.meta.url).resolve(`${name}/bin/anvil`) };
  } catch {
    // Not every platform has a package with a checksum.
    const folders = (process.env['PATH'] ?? '').split(delimiter);
    const path = folders.map((folder) => join(folder, 'anvil')).find((one) => existsSync(one));
    return path === undefined ? { missing: `${name} is not installed` } : { path };
  }
}

/** `chainId` and the address of USDC: those of Base by default. */
export async function startAnvil(
  chainId: number = BASE_CHAIN.id,
  token = USDC,
): Promise<AnvilChain> {
  const binary = anvilBinary();
  if ('missing' in binary) {
    throw new Error(
      `${binary.missing}, so nothing can be tried against a private Base: run npm ci, or put anvil on the search path`,
    );
  }
  const options = `--port 0 --chain-id ${chainId} --accounts 1 --threads 2 --hardfork cancun`.split(
    ' ',
  );
  const child = endWithUs(spawn(binary.path, options, { stdio: ['ignore', 'pipe', 'ignore'] }));
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
  });
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  try {
    const port = await listeningPort(child.stdout);
    child.stdout.resume();
    return await furnish(`http://127.0.0.1:${port}`, token, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function listeningPort(stdout: NodeJS.ReadableStream): Promise<string> {
  const lines = createInterface({ input: stdout });
  const timer = setTimeout(() => lines.close(), START_TIMEOUT_MS);
  try {
    for await (const line of lines) {
      const match = /Listening on [\d.]+:(\d+)/.exec(line);
      if (match?.[1] !== undefined) return match[1];
    }
  } finally {
    clearTimeout(timer);
  }
  throw new Error('anvil did not start');
}

async function furnish(rpcUrl: string, token: Hex, stop: () => Promise<void>): Promise<AnvilChain> {
  const client = openClient(rpcUrl);
  const { runtime } = readFixture();
  await client.setCode({ address: token, bytecode: runtime['TestUsdc'] as Hex });
  await client.setCode({ address: MULTICALL, bytecode: runtime['TestMulticall'] as Hex });
  await client.setCode({ address: STAKING, bytecode: runtime['TestStaking'] as Hex });
  await client.setBalance({ address: RICH, value: 10n ** 22n });
  await client.request({ method: 'anvil_autoImpersonateAccount', params: [true] } as never); // viem has no type for this
  /** Sends a transaction and resolves when it is in a block; without `gas` a reverting one is rejected. */
  async function send(from: Hex, to: Hex, data: Hex, gas?: bigint): Promise<Hex> {
    const limit = gas === undefined ? {} : { gas: numberToHex(gas) };
    const call = { method: 'eth_sendTransactionSync', params: [{ from, to, data, ...limit }] };
    const receipt: { transactionHash: Hex } = await client.request(call as never); // viem has no type for this
    return receipt.transactionHash;
  }
  const callToken: AnvilChain['callToken'] = async (functionName, args) => {
    // The caller passes valid arguments.
    const data = encodeFunctionData({ abi: USDC_ABI, functionName, args: args as never });
    return await send(RICH, token, data, TOKEN_CALL_GAS);
  };
  const callAs: AnvilChain['callAs'] = async (from, to, data) => {
    await client.setBalance({ address: from, value: 10n ** 18n });
    await send(from, to, data);
  };
  return {
    rpcUrl,
    client,
    callToken,
    mint: async (to, units) => void (await callToken('mint', [to, units])),
    balance: async (owner) =>
      await client.readContract({
        address: token,
        abi: USDC_ABI,
        functionName: 'balanceOf',
        args: [owner],
      }),
    setTokens: async (owner, units) => {
      const slot = encodeAbiParameters([{ type: 'address' }, { type: 'uint256' }], [owner, 0n]);
      await client.setStorageAt({
        address: token,
        index: keccak256(slot),
        value: numberToHex(units, { size: 32 }),
      });
    },
    reorg: async (depth, transactions = []) => {
      const call = { method: 'anvil_reorg', params: [depth, transactions] };
      await client.request(call as never); // viem has no type for this
    },
    fund: async (address, wei) => await client.setBalance({ address, value: wei }),
    deployPermit2: async () => {
      const { deployer, contracts } = readPermit2Fixture();
      for (const { salt, initCode } of Object.values(contracts)) {
        const data = concatHex([salt, initCode]);
        await send(RICH, deployer, data, DEPLOY_GAS);
      }
    },
    callAs,
    approvePermit2: async (owner, units) => {
      const args = [readPermit2Fixture().contracts.permit2.address, units] as const;
      const data = encodeFunctionData({ abi: USDC_ABI, functionName: 'approve', args });
      await callAs(owner, USDC, data);
    },
    approved: async (owner) =>
      await client.readContract({
        address: USDC,
        abi: USDC_ABI,
        functionName: 'allowance',
        args: [owner, readPermit2Fixture().contracts.permit2.address],
      }),
    permit: async (owner, spender, { amount, deadline, signature }) => {
      const { v, r, s } = parseSignature(signature as Hex);
      await callToken('permit', [owner, spender, amount, deadline, v, r, s]);
    },
    placeWallet: async (address, owner) => {
      await client.setCode({ address, bytecode: runtime['TestWallet'] as Hex });
      await client.setStorageAt({ address, index: 0, value: pad(owner) });
    },
    stop,
  };
}
