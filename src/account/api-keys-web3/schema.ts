/** The body of `POST /api_keys/generate_web3_key`: a key's wishes and the wallet's proof. */
import { z } from 'zod';
import { CreateKeyRequest } from '../api-keys/schema.ts';

export type CreateWalletKeyRequest = z.infer<typeof CreateWalletKeyRequest>;
export const CreateWalletKeyRequest = CreateKeyRequest.extend({
  address: z.string().min(1).max(100).describe('The wallet that signed.'),
  token: z.string().min(1).max(512).describe('What `GET` gave.'),
  signature: z.string().min(1).max(8_192).describe('Of the token as text, by the wallet.'),
}).meta({ id: 'CreateWalletKeyRequest' });
