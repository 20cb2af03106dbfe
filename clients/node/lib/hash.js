// FNV-1a 64 (docs/protocol.md, section 6).
export function fnv1a64(text) {
  let h = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(text)) h = ((h ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
  return h;
}

// hashOf returns the number from 0 to size-1 that H, or spread, has for a job's name.
export const hashOf = (job, field, size) => Number(fnv1a64(job + "\0" + field) % BigInt(size));
