/**
 * EVM wallets, discovered by EIP-6963. A payment is an EIP-3009 authorization: the wallet signs it,
 * and the service sends it. This code calls no other server.
 */
import { createStore } from 'mipd';
import { bytesToHex, getAddress, stringToHex } from 'viem/utils';
import { usdText } from '../format.ts';
import { networkName } from '../page-facts.ts';
import {
  type ConnectedWallet,
  type Offer,
  type WalletChoice,
  WalletError,
  safeIcon,
  usdOfUnits,
  walletError,
} from './wallet.ts';

interface Provider {
  request(call: { method: string; params?: unknown }): Promise<unknown>;
}

/** The wallet does not know the chain. */
const UNKNOWN_CHAIN = 4902;
const KNOWN_CHAINS: Readonly<Record<number, Readonly<Record<string, unknown>>>> = {
  8453: {
    chainName: 'Base',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: ['https://mainnet.base.org'],
    blockExplorerUrls: ['https://basescan.org'],
  },
  84532: {
    chainName: 'Base Sepolia',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: ['https://sepolia.base.org'],
    blockExplorerUrls: ['https://sepolia.basescan.org'],
  },
};

/** Reports the wallets now and whenever one is added. Returns a function that stops it. */
export function watchEvmWallets(report: (wallets: readonly WalletChoice[]) => void): () => void {
  const store = createStore();
  const update = (): void =>
    report(
      store.getProviders().map(({ info, provider }) => ({
        id: `evm:${info.uuid}`,
        name: info.name,
        icon: safeIcon(info.icon),
        rail: 'base',
        connect: () => connect(info.name, provider),
      })),
    );
  update();
  const stop = store.subscribe(update);
  return () => {
    stop();
    store.destroy();
  };
}

async function connect(name: string, provider: Provider): Promise<ConnectedWallet> {
  const [first] = await call<readonly string[]>(provider, 'eth_requestAccounts');
  if (first === undefined) {
    throw new WalletError('The wallet returned no account. Unlock it and try again.');
  }
  const address = getAddress(first);
  return {
    name,
    rail: 'base',
    address,
    signText: (text) => call<string>(provider, 'personal_sign', [stringToHex(text), address]),
    signPayment: (offer, units) => signPayment(provider, address, offer, units),
  };
}

async function call<T>(provider: Provider, method: string, params?: unknown): Promise<T> {
  try {
    const request = params === undefined ? { method } : { method, params };
    return (await provider.request(request)) as T; // EIP-1193 defines the result of each method
  } catch (error) {
    throw walletError(error);
  }
}

const AUTHORIZATION = [
  { name: 'from', type: 'address' },
  { name: 'to', type: 'address' },
  { name: 'value', type: 'uint256' },
  { name: 'validAfter', type: 'uint256' },
  { name: 'validBefore', type: 'uint256' },
  { name: 'nonce', type: 'bytes32' },
];
const DOMAIN = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
];
const NONCE_BYTES = 32;

async function signPayment(
  provider: Provider,
  from: string,
  offer: Offer,
  units: bigint,
): Promise<Readonly<Record<string, unknown>>> {
  const chainId = Number(offer.network.split(':')[1]);
  await switchChain(provider, chainId);
  await checkFunds(provider, from, offer, units);
  const authorization = {
    from,
    to: getAddress(offer.payTo),
    value: String(units),
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1_000) + offer.maxTimeoutSeconds),
    nonce: bytesToHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES))),
  };
  const typedData = {
    types: { EIP712Domain: DOMAIN, TransferWithAuthorization: AUTHORIZATION },
    primaryType: 'TransferWithAuthorization',
    domain: {
      name: offer.extra['name'],
      version: offer.extra['version'],
      chainId,
      verifyingContract: getAddress(offer.asset),
    },
    message: authorization,
  };
  const params = [from, JSON.stringify(typedData)];
  const signature = await call<string>(provider, 'eth_signTypedData_v4', params);
  return { authorization, signature };
}

/** Wallets sign only for their selected chain. */
async function switchChain(provider: Provider, chainId: number): Promise<void> {
  const isSelected = async (): Promise<boolean> =>
    Number(await call<string>(provider, 'eth_chainId')) === chainId;
  if (await isSelected()) return;
  const known = KNOWN_CHAINS[chainId];
  const wrongChain = new WalletError(
    `Your wallet uses another chain. Switch it to ${networkName(`eip155:${chainId}`)} and try again.`,
  );
  const wanted = `0x${chainId.toString(16)}`;
  try {
    await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: wanted }] });
  } catch (error) {
    const { code } = error as { code?: unknown }; // EIP-1193
    if (code !== UNKNOWN_CHAIN || known === undefined) throw wrongChain;
    await call(provider, 'wallet_addEthereumChain', [{ chainId: wanted, ...known }]);
  }
  if (!(await isSelected())) throw wrongChain;
}

const BALANCE_OF = '0x70a08231';

/** Throws before the signature if the balance is too low and the wallet can read it. */
async function checkFunds(
  provider: Provider,
  from: string,
  { asset, network }: Offer,
  units: bigint,
): Promise<void> {
  let balance: bigint;
  try {
    const data = BALANCE_OF + from.slice(2).toLowerCase().padStart(64, '0');
    const result = await provider.request({
      method: 'eth_call',
      params: [{ to: asset, data }, 'latest'],
    });
    balance = BigInt(String(result));
  } catch {
    // Some wallets do not support this call. The service checks the balance before it sends.
    return;
  }
  if (balance >= units) return;
  throw new WalletError(
    `This wallet has ${usdText(usdOfUnits(balance))} in USDC on ${networkName(network)}, which is less than ${usdText(usdOfUnits(units))}. Nothing was signed. Choose a smaller amount.`,
  );
}
