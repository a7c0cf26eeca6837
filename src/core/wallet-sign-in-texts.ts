/** Error codes of the sign-in of a wallet: the public message and the next step of the client. */

type Text = readonly [message: string, remedy: string];

export const WALLET_SIGN_IN_TEXTS = {
  X402_INVALID_SIGN_IN: ['The wallet sign-in is not valid', 'Sign a new challenge.'],
  X402_SIGN_IN_INVALID_PAYLOAD: [
    'The sign-in header must be base64 of a sign-in in JSON',
    'Create the header with an x402 client.',
  ],
  X402_SIGN_IN_PARSE_ERROR: ['The sign-in message cannot be parsed', 'Use the EIP-4361 text.'],
  X402_SIGN_IN_INVALID_MESSAGE: [
    'The sign-in message lacks a required field',
    'Add the field that the message names.',
  ],
  X402_SIGN_IN_ADDRESS_MISMATCH: [
    'The address differs from the one in the message',
    'Send the address of the signer.',
  ],
  X402_SIGN_IN_INVALID_CHAIN_ID: ['The chain id is not valid', 'Use a CAIP-2 chain id.'],
  X402_SIGN_IN_CHAIN_MISMATCH: [
    'The chain id differs from the one in the message',
    'Send the chain of the message.',
  ],
  X402_SIGN_IN_UNSUPPORTED_CHAIN: [
    'The chain is not supported for sign-in',
    'Sign in on Base (8453) or Solana mainnet.',
  ],
  X402_SIGN_IN_MISSING_NONCE: ['The sign-in has no nonce', 'Use the nonce of the challenge.'],
  X402_SIGN_IN_DOMAIN_MISMATCH: [
    'The sign-in is for another domain',
    'Sign for the domain of the challenge.',
  ],
  X402_SIGN_IN_TIMESTAMP_MISMATCH: [
    'The timestamp differs from the issued-at time',
    'Use the time of signing.',
  ],
  X402_SIGN_IN_EXPIRED: ['The sign-in has expired', 'Sign a new challenge.'],
  X402_SIGN_IN_FUTURE_TIMESTAMP: [
    'The sign-in was issued in the future',
    'Correct the clock of the client.',
  ],
  X402_SIGN_IN_NOT_BEFORE: ['The sign-in is not valid yet', 'Wait until `notBefore`.'],
  X402_SIGN_IN_INVALID_SIGNATURE: [
    'The signature does not match the message and the address',
    'Sign the unchanged message with the wallet.',
  ],
  X402_SIGN_IN_INVALID_WALLET: [
    'The wallet address is not valid',
    'Use a checksummed EVM or base58 Solana address.',
  ],
  X402_SIGN_IN_NONCE_REUSED: [
    'The sign-in was already used',
    'Sign a new challenge for each request.',
  ],
} as const satisfies Readonly<Record<string, Text>>;
