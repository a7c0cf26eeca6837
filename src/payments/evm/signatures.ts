/**
 * Who signed an ERC-3009 payment: the key of the payer, found without the chain, or its contract,
 * which the chain is asked about (EIP-1271, or ERC-6492 before it is deployed).
 */
import { hashTypedData, hexToBytes } from 'viem';
import type { Hex } from 'viem';
import type { SignedPayment } from '../payment.ts';
import { recoverAddress } from '../sign-in/signatures.ts';
import type { ContractSignatureCheck } from '../sign-in/signatures.ts';
import { askingClient } from './asking.ts';
import { TRANSFER_TYPES } from './chain.ts';
import type { EvmClient } from './chain.ts';
import { erc3009Of } from './read.ts';

/** Rejects when the chain could not be asked: the library alone would say that the signature is bad. */
export function contractSignatures(client: EvmClient): ContractSignatureCheck {
  return async (question) => {
    const asking = askingClient(client);
    const isGood = await asking.client.verifyHash(question).catch(() => false); // told apart below
    if (!isGood && asking.isTroubled()) throw new Error('The node did not answer');
    return isGood;
  };
}

/** Whether its payer signed the payment. Rejects as `isContractSignature` does. */
export async function isSignedByPayer(
  payment: SignedPayment,
  chainId: number,
  isContractSignature: ContractSignatureCheck,
): Promise<boolean> {
  const signature = payment.inner['signature'] as Hex; // checked by `readErc3009`
  const hash = digestOf(payment, chainId);
  if (recoverAddress(hexToBytes(hash), hexToBytes(signature)) === payment.wallet) return true;
  const address = payment.wallet as Hex; // an EVM identity
  return await isContractSignature({ address, hash, signature });
}

/** What the payer of an ERC-3009 authorization has signed (EIP-712). */
function digestOf(payment: SignedPayment, chainId: number): Hex {
  const { from, to, value, validAfter, validBefore, nonce } = erc3009Of(payment);
  const { offer } = payment;
  return hashTypedData({
    domain: {
      name: offer.extra['name'],
      version: offer.extra['version'],
      chainId,
      verifyingContract: offer.asset as Hex, // a valid EVM address
    },
    types: TRANSFER_TYPES,
    primaryType: 'TransferWithAuthorization',
    message: { from, to, value, validAfter, validBefore, nonce },
  });
}
